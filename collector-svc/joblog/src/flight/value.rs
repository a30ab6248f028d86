//! Values of a pickle, in one arena: shared references cost nothing, and a
//! value that holds itself cannot be walked without end.

use std::ops::Range;

/// A value's place in the arena.
pub(super) type Id = u32;

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// Bytes of the input.
    Text(Range<usize>),
    /// List, tuple or set.
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// A value that no dump uses, such as a number beyond 64 bits.
    Other,
}

/// All values of one pickle.
#[derive(Debug)]
pub(super) struct Values<'a> {
    pub(super) input: &'a [u8],
    pub(super) nodes: Vec<Node>,
    pub(super) root: Id,
}

/// A value with the arena that it refers to.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    values: &'a Values<'a>,
    id: Id,
}

impl<'a> Values<'a> {
    pub(super) fn root(&'a self) -> View<'a> {
        View {
            values: self,
            id: self.root,
        }
    }
}

impl<'a> View<'a> {
    fn node(self) -> &'a Node {
        self.values
            .nodes
            .get(self.id as usize)
            .unwrap_or(&Node::None)
    }

    const fn at(self, id: Id) -> View<'a> {
        View {
            values: self.values,
            id,
        }
    }

    /// The value under a key of a dictionary; of two the later.
    pub(super) fn get(self, key: &str) -> Option<View<'a>> {
        let Node::Dict(pairs) = self.node() else {
            return None;
        };
        pairs
            .iter()
            .rev()
            .find(|(name, _)| self.at(*name).text() == Some(key.as_bytes()))
            .map(|(_, value)| self.at(*value))
    }

    /// Keys and values of a dictionary.
    pub(super) fn pairs(self) -> impl Iterator<Item = (View<'a>, View<'a>)> {
        let pairs: &[(Id, Id)] = match self.node() {
            Node::Dict(pairs) => pairs,
            _ => &[],
        };
        pairs
            .iter()
            .map(move |(key, value)| (self.at(*key), self.at(*value)))
    }

    /// Items of a list or tuple.
    pub(super) fn items(self) -> Option<impl Iterator<Item = View<'a>>> {
        let Node::List(items) = self.node() else {
            return None;
        };
        Some(items.iter().map(move |id| self.at(*id)))
    }

    pub(super) fn text(self) -> Option<&'a [u8]> {
        match self.node() {
            Node::Text(range) => self.values.input.get(range.clone()),
            _ => None,
        }
    }

    /// The text, or a number written out: keys of groups are both.
    pub(super) fn name(self) -> Option<String> {
        match self.node() {
            Node::Int(number) => Some(number.to_string()),
            _ => self
                .text()
                .map(|text| String::from_utf8_lossy(text).into_owned()),
        }
    }

    pub(super) fn int(self) -> Option<i64> {
        match self.node() {
            Node::Int(number) => Some(*number),
            Node::Bool(value) => Some(i64::from(*value)),
            _ => std::str::from_utf8(self.text()?).ok()?.trim().parse().ok(),
        }
    }

    pub(super) fn bool(self) -> Option<bool> {
        match self.node() {
            Node::Bool(value) => Some(*value),
            Node::Int(number) => Some(*number != 0),
            _ => None,
        }
    }

    pub(super) fn is_dict(self) -> bool {
        matches!(self.node(), Node::Dict(_))
    }
}
