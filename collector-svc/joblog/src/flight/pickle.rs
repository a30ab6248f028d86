//! A reader of pickled data that executes nothing.
//!
//! It knows the opcodes that build plain data (Python's `pickletools`, protocols
//! 0 to 5) and refuses every one that names, imports or calls something.

use super::DumpError;
use super::value::{Id, Node, Values};

/// Values of one pickle. A recorder of 20,000 entries with stacks has about four
/// million; the bound keeps the arena below some hundred megabytes.
const MAX_NODES: usize = 8 << 20;

/// Items that all containers together hold, for the same reason.
const MAX_ITEMS: usize = 32 << 20;

/// Depth of the stack between marks; plain data needs one per nesting.
const MAX_MARKS: usize = 1_000;

struct Reader<'a> {
    input: &'a [u8],
    at: usize,
    nodes: Vec<Node>,
    stack: Vec<Id>,
    marks: Vec<usize>,
    memo: Vec<Option<Id>>,
    items: usize,
}

type Step<T> = Result<T, String>;

/// Reads a pickle of plain data.
pub(super) fn read(input: &[u8]) -> Result<Values<'_>, DumpError> {
    let mut reader = Reader {
        input,
        at: 0,
        nodes: Vec::new(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
        items: 0,
    };
    loop {
        let at = reader.at;
        match reader.step() {
            Ok(false) => {}
            Ok(true) => break,
            Err(reason) => return Err(DumpError::Pickle { at, reason }),
        }
    }
    let root = reader.stack.pop().ok_or_else(|| DumpError::Pickle {
        at: reader.at,
        reason: "it ends without a value".to_owned(),
    })?;
    Ok(Values {
        input,
        nodes: reader.nodes,
        root,
    })
}

impl<'a> Reader<'a> {
    /// One opcode; true at the end.
    fn step(&mut self) -> Step<bool> {
        let code = self.byte()?;
        match code {
            b'.' => return Ok(true),
            0x80 => self.protocol()?,
            0x95 => {
                self.take(8)?;
            }
            b'(' => self.mark()?,
            b'0' => {
                self.pop()?;
            }
            b'1' => {
                self.pop_mark()?;
            }
            b'2' => {
                let top = *self.stack.last().ok_or("the stack is empty")?;
                self.stack.push(top);
            }
            b'N' | 0x88 | 0x89 | b'I' | b'J' | b'K' | b'M' | b'L' | 0x8a | 0x8b | b'F' | b'G' => {
                self.number(code)?;
            }
            b'S' | b'T' | b'U' | b'V' | b'X' | 0x8c | 0x8d | b'B' | b'C' | 0x8e | 0x96 => {
                self.string(code)?
            }
            b']' | b')' | 0x8f | b'l' | b't' | 0x85 | 0x86 | 0x87 | 0x91 | b'a' | b'e' | 0x90 => {
                self.list(code)?;
            }
            b'}' | b'd' | b's' | b'u' => self.dict(code)?,
            b'p' | b'q' | b'r' | 0x94 | b'g' | b'h' | b'j' => self.memo(code)?,
            _ => return Err(refusal(code)),
        }
        Ok(false)
    }

    fn protocol(&mut self) -> Step<()> {
        match self.byte()? {
            0..=5 => Ok(()),
            newer => Err(format!("protocol {newer} is not known; 0 to 5 are read")),
        }
    }

    fn mark(&mut self) -> Step<()> {
        if self.marks.len() >= MAX_MARKS {
            return Err(format!("more than {MAX_MARKS} containers are nested"));
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    fn number(&mut self, code: u8) -> Step<()> {
        let node = match code {
            b'N' => Node::None,
            0x88 => Node::Bool(true),
            0x89 => Node::Bool(false),
            b'J' => Node::Int(i64::from(i32::from_le_bytes(self.array()?))),
            b'K' => Node::Int(i64::from(self.byte()?)),
            b'M' => Node::Int(i64::from(u16::from_le_bytes(self.array()?))),
            b'G' => Node::Float(f64::from_be_bytes(self.array()?)),
            0x8a => {
                let length = usize::from(self.byte()?);
                little_endian(self.take(length)?)
            }
            0x8b => {
                let length = self.length4()?;
                little_endian(self.take(length)?)
            }
            b'I' => match self.line()? {
                b"01" => Node::Bool(true),
                b"00" => Node::Bool(false),
                digits => decimal(digits),
            },
            b'L' => {
                let digits = self.line()?;
                decimal(digits.strip_suffix(b"L").unwrap_or(digits))
            }
            _ => {
                let text = std::str::from_utf8(self.line()?).map_err(|_| "a float is no text")?;
                Node::Float(text.trim().parse().map_err(|_| "a float cannot be read")?)
            }
        };
        self.push(node)
    }

    fn string(&mut self, code: u8) -> Step<()> {
        let length = match code {
            b'S' | b'V' => {
                let start = self.at;
                let line = self.line()?;
                // Quotes of protocol 0 stand around the text of STRING.
                let quote = usize::from(code == b'S' && line.len() >= 2);
                return self.push(Node::Text(start + quote..start + line.len() - quote));
            }
            b'U' | 0x8c | b'C' => usize::from(self.byte()?),
            b'T' | b'X' | b'B' => self.length4()?,
            _ => usize::try_from(u64::from_le_bytes(self.array()?))
                .map_err(|_| "a text is too long")?,
        };
        let start = self.at;
        self.take(length)?;
        self.push(Node::Text(start..start + length))
    }

    fn list(&mut self, code: u8) -> Step<()> {
        match code {
            b']' | b')' | 0x8f => self.push(Node::List(Vec::new())),
            b'l' | b't' | 0x91 => {
                let items = self.pop_mark()?;
                self.count(items.len())?;
                self.push(Node::List(items))
            }
            0x85..=0x87 => {
                let length = usize::from(code - 0x84);
                let from = self
                    .stack
                    .len()
                    .checked_sub(length)
                    .filter(|from| self.floor() <= *from);
                let items = self
                    .stack
                    .split_off(from.ok_or("the stack is too short for a tuple")?);
                self.count(items.len())?;
                self.push(Node::List(items))
            }
            _ => {
                let items = if code == b'a' {
                    vec![self.pop()?]
                } else {
                    self.pop_mark()?
                };
                self.count(items.len())?;
                match self.top()? {
                    Node::List(list) => {
                        list.extend(items);
                        Ok(())
                    }
                    _ => Err("it appends to something that is no list".to_owned()),
                }
            }
        }
    }

    fn dict(&mut self, code: u8) -> Step<()> {
        let flat = match code {
            b'}' => return self.push(Node::Dict(Vec::new())),
            b's' => {
                let value = self.pop()?;
                vec![self.pop()?, value]
            }
            _ => self.pop_mark()?,
        };
        self.count(flat.len())?;
        let (pairs, rest) = flat.as_chunks::<2>();
        if !rest.is_empty() {
            return Err("a key has no value".to_owned());
        }
        let pairs: Vec<(Id, Id)> = pairs.iter().map(|[key, value]| (*key, *value)).collect();
        if code == b'd' {
            return self.push(Node::Dict(pairs));
        }
        match self.top()? {
            Node::Dict(dict) => {
                dict.extend(pairs);
                Ok(())
            }
            _ => Err("it sets a key of something that is no dictionary".to_owned()),
        }
    }

    fn memo(&mut self, code: u8) -> Step<()> {
        let slot = match code {
            0x94 => self.memo.len(),
            b'q' | b'h' => usize::from(self.byte()?),
            b'r' | b'j' => self.length4()?,
            _ => std::str::from_utf8(self.line()?)
                .ok()
                .and_then(|digits| digits.trim().parse().ok())
                .ok_or("a memo number cannot be read")?,
        };
        if matches!(code, b'g' | b'h' | b'j') {
            let id = self.memo.get(slot).copied().flatten();
            self.stack
                .push(id.ok_or("it refers to something that was not remembered")?);
            return Ok(());
        }
        // A memo has no more slots than there are values.
        if slot > self.nodes.len() {
            return Err(format!("memo number {slot} is out of range"));
        }
        let top = *self.stack.last().ok_or("the stack is empty")?;
        if self.memo.len() <= slot {
            self.memo.resize(slot + 1, None);
        }
        self.memo[slot] = Some(top);
        Ok(())
    }

    fn push(&mut self, node: Node) -> Step<()> {
        if self.nodes.len() >= MAX_NODES || self.stack.len() >= MAX_NODES {
            return Err(format!("more than {MAX_NODES} values"));
        }
        let id = Id::try_from(self.nodes.len()).map_err(|_| "too many values")?;
        self.nodes.push(node);
        self.stack.push(id);
        Ok(())
    }

    fn count(&mut self, items: usize) -> Step<()> {
        self.items += items;
        if self.items > MAX_ITEMS {
            return Err(format!("more than {MAX_ITEMS} items"));
        }
        Ok(())
    }

    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Step<Id> {
        if self.stack.len() <= self.floor() {
            return Err("the stack is empty".to_owned());
        }
        self.stack
            .pop()
            .ok_or_else(|| "the stack is empty".to_owned())
    }

    fn pop_mark(&mut self) -> Step<Vec<Id>> {
        let mark = self.marks.pop().ok_or("there is no mark")?;
        Ok(self.stack.split_off(mark.min(self.stack.len())))
    }

    fn top(&mut self) -> Step<&mut Node> {
        let id = *self.stack.last().ok_or("the stack is empty")?;
        self.nodes
            .get_mut(id as usize)
            .ok_or_else(|| "a value is missing".to_owned())
    }

    fn byte(&mut self) -> Step<u8> {
        Ok(self.take(1)?[0])
    }

    fn array<const N: usize>(&mut self) -> Step<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| "it is cut".to_owned())
    }

    fn length4(&mut self) -> Step<usize> {
        usize::try_from(u32::from_le_bytes(self.array()?))
            .map_err(|_| "a length is too long".to_owned())
    }

    fn take(&mut self, length: usize) -> Step<&'a [u8]> {
        let end = self
            .at
            .checked_add(length)
            .filter(|end| *end <= self.input.len());
        let end = end.ok_or("it is cut: the dump was not written to its end")?;
        let bytes = &self.input[self.at..end];
        self.at = end;
        Ok(bytes)
    }

    fn line(&mut self) -> Step<&'a [u8]> {
        let rest = &self.input[self.at..];
        let length = memchr::memchr(b'\n', rest).ok_or("it is cut in a line")?;
        self.at += length + 1;
        Ok(&rest[..length])
    }
}

fn decimal(digits: &[u8]) -> Node {
    std::str::from_utf8(digits)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .map_or(Node::Other, Node::Int)
}

/// A number in two's complement, little-endian, of any length.
fn little_endian(bytes: &[u8]) -> Node {
    let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut out = [if negative { 0xff } else { 0 }; 8];
    if bytes.len() > out.len() {
        return Node::Other;
    }
    out[..bytes.len()].copy_from_slice(bytes);
    Node::Int(i64::from_le_bytes(out))
}

/// Why an opcode is not carried out.
fn refusal(code: u8) -> String {
    let what = match code {
        b'c' | 0x93 => "it names something to import",
        b'R' | 0x81 | 0x92 | b'o' | b'i' => "it would call something",
        b'b' => "it would set the state of an object",
        b'P' | b'Q' => "it refers to something outside of the dump",
        0x82..=0x84 => "it uses the extension registry",
        0x97 | 0x98 => "it refers to a buffer outside of the dump",
        _ => "an opcode is not known",
    };
    format!("{what} (opcode 0x{code:02x}); a Flight Recorder dump holds plain data alone")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused(bytes: &[u8]) -> String {
        read(bytes).unwrap_err().to_string()
    }

    #[test]
    fn plain_data_of_every_protocol() {
        // {'a': [1, 2, -3], 'b': ('x', None, True)} by Python's protocols 0, 2 and 4.
        let proto0 = b"(dp0\nVa\np1\n(lp2\nI1\naI2\naI-3\nasVb\np3\n(Vx\np4\nNI01\ntp5\ns.";
        let proto2 = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01]q\x02(K\x01K\x02J\xfd\xff\xff\xffeX\x01\x00\x00\x00bq\x03X\x01\x00\x00\x00xq\x04N\x88\x87q\x05u.";
        let proto4 = b"\x80\x04\x95\x22\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01K\x02J\xfd\xff\xff\xffe\x8c\x01b\x94\x8c\x01x\x94N\x88\x87\x94u.";
        for bytes in [&proto0[..], proto2, proto4] {
            let values = read(bytes).unwrap();
            let root = values.root();
            let list: Vec<i64> = root
                .get("a")
                .unwrap()
                .items()
                .unwrap()
                .filter_map(|v| v.int())
                .collect();
            assert_eq!(list, [1, 2, -3]);
            let tuple = root.get("b").unwrap();
            let first = tuple.items().unwrap().next().unwrap();
            assert_eq!(first.text(), Some(&b"x"[..]));
        }
    }

    #[test]
    fn nothing_is_imported_or_called() {
        assert!(refused(b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00id\x85R.").contains("to import"));
        assert!(refused(b"\x80\x04\x8c\x02os\x8c\x06system\x93.").contains("to import"));
        assert!(refused(b"(ios\nsystem\n.").contains("call"));
        assert!(refused(b"\x80\x02}}b.").contains("state"));
        assert!(refused(b"Pid\n.").contains("outside"));
    }

    #[test]
    fn a_list_that_holds_itself_and_shared_values_cost_nothing() {
        let values = read(b"]q\x00h\x00a.").unwrap();
        assert_eq!(values.nodes.len(), 1);
        // A list of two of the list before, thirty deep: two to the thirty in full.
        let mut bombe = b"]q\x00".to_vec();
        for slot in 0..30u8 {
            bombe.extend([b']', b'(', b'h', slot, b'h', slot, b'e', b'q', slot + 1]);
        }
        bombe.push(b'.');
        assert_eq!(read(&bombe).unwrap().nodes.len(), 31);
    }

    #[test]
    fn broken_pickles_say_where() {
        assert_eq!(
            refused(b"\x80\x02}q"),
            "the pickle is refused at byte 3: it is cut: the dump was not written to its end"
        );
        assert!(refused(b"\x80\x09.").contains("protocol 9"));
        assert!(refused(b"h\x05.").contains("not remembered"));
        assert!(refused(b"r\xff\xff\xff\x7f.").contains("out of range"));
        assert!(refused(b".").contains("without a value"));
        assert!(refused(b"X\xff\xff\xff\xffabc.").contains("cut"));
        assert!(refused(&[b'('; 2_000]).contains("nested"));
        assert!(refused(b"}(K\x01u.").contains("no value"));
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes: Vec<u8>) {
            let _ = read(&bytes);
        }

        #[test]
        fn any_opcodes_end(codes in proptest::collection::vec(prop::sample::select(
            b"(.012NIJKMLFGSTUVXBC])ltae}dsupqrghj\x80\x85\x86\x87\x88\x89\x8a\x8c\x94\x01\x00\n".to_vec()), 0..400)) {
            if let Ok(values) = read(&codes) {
                prop_assert!(values.nodes.len() <= codes.len());
            }
        }
    }
}
