//! Which kernel module drives each RDMA device, asked over RDMA netlink, because
//! sysfs does not tell it for software devices.
//!
//! Nothing is asked where no device is: opening the socket or asking for a
//! character device would make the kernel load modules.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto, socket_with,
};

use super::Roots;
use super::roots::names;

/// Device name → kernel module.
pub type DriverNames = BTreeMap<String, String>;

/// Bytes of one answer; the kernel packs at most a page into it.
const ANSWER_BYTES: usize = 32 << 10;
/// Answers of one dump that are read: one device takes about 100 bytes, so that
/// this is far beyond any host.
const ANSWERS: usize = 256;

// include/uapi/rdma/rdma_netlink.h
const NLDEV: u16 = 5 << 10;
const CMD_GET: u16 = 1;
const CMD_GET_CHARDEV: u16 = 15;
const ATTR_DEV_INDEX: u16 = 1;
const ATTR_DEV_NAME: u16 = 2;
const ATTR_CHARDEV_TYPE: u16 = 69;
const ATTR_UVERBS_DRIVER_ID: u16 = 73;

// include/uapi/linux/netlink.h
const HEADER_BYTES: usize = 16;
const ATTR_BYTES: usize = 4;
const ATTR_TYPE_MASK: u16 = 0x3fff;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x001;
const NLM_F_DUMP: u16 = 0x300;

/// `enum rdma_driver_id` (ib_user_ioctl_verbs.h) → module name.
const MODULES: [(u32, &str); 17] = [
    (1, "mlx5_ib"),
    (2, "mlx4_ib"),
    (4, "iw_cxgb4"),
    (5, "ib_mthca"),
    (6, "bnxt_re"),
    (7, "ocrdma"),
    (9, "irdma"),
    (10, "vmw_pvrdma"),
    (11, "qedr"),
    (12, "hns_roce_hw_v2"),
    (13, "usnic_verbs"),
    (14, "rdma_rxe"),
    (15, "hfi1"),
    (16, "ib_qib"),
    (17, "efa"),
    (18, "siw"),
    (19, "erdma"),
];

/// Asks the kernel; empty where there is no device, no uverbs, or no answer:
/// the inventory then falls back on the parent device.
#[must_use]
pub fn driver_names(roots: &Roots) -> DriverNames {
    let no_device = names(&roots.sys.join("class/infiniband")).is_empty();
    if no_device || !roots.sys.join("class/infiniband_verbs").is_dir() {
        return DriverNames::new();
    }
    ask().unwrap_or_else(|error| {
        tracing::debug!(%error, "RDMA netlink does not answer; drivers are taken from sysfs");
        DriverNames::new()
    })
}

fn ask() -> io::Result<DriverNames> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        flags,
        Some(netlink::RDMA),
    )?;
    bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    let mut devices = Vec::new();
    let dump = request(CMD_GET, NLM_F_REQUEST | NLM_F_DUMP, &[]);
    exchange(&socket, &dump, &mut |attrs| {
        if let (Some(index), Some(name)) = (attrs.u32(ATTR_DEV_INDEX), attrs.text(ATTR_DEV_NAME)) {
            devices.push((index, name));
        }
    })?;
    let mut drivers = DriverNames::new();
    for (index, name) in devices {
        let attrs = [
            attribute(ATTR_DEV_INDEX, &index.to_ne_bytes()),
            attribute(ATTR_CHARDEV_TYPE, b"uverbs\0"),
        ];
        let question = request(CMD_GET_CHARDEV, NLM_F_REQUEST, &attrs);
        let mut module = None;
        // A device that vanished in between is answered with an error.
        exchange(&socket, &question, &mut |attrs| {
            module = attrs.u32(ATTR_UVERBS_DRIVER_ID).and_then(module_of);
        })
        .ok();
        if let Some(module) = module {
            drivers.insert(name, module.to_owned());
        }
    }
    Ok(drivers)
}

fn module_of(driver_id: u32) -> Option<&'static str> {
    MODULES
        .iter()
        .find(|(id, _)| *id == driver_id)
        .map(|(_, module)| *module)
}

fn request(command: u16, flags: u16, attributes: &[Vec<u8>]) -> Vec<u8> {
    let body = attributes.concat();
    let length = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(u32::MAX);
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend(length.to_ne_bytes());
    message.extend((NLDEV + command).to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(1u32.to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    message.extend(body);
    message
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(ATTR_BYTES + value.len()).unwrap_or(u16::MAX);
    let mut attribute = Vec::new();
    attribute.extend(length.to_ne_bytes());
    attribute.extend(kind.to_ne_bytes());
    attribute.extend(value);
    attribute.resize(attribute.len().next_multiple_of(4), 0);
    attribute
}

/// Sends a question and gives each answer's attributes to `take`. RDMA netlink
/// answers before the send returns, so that there is nothing to wait for.
fn exchange(socket: &OwnedFd, message: &[u8], take: &mut dyn FnMut(&Attributes)) -> io::Result<()> {
    sendto(
        socket,
        message,
        SendFlags::empty(),
        &SocketAddrNetlink::new(0, 0),
    )?;
    let mut buffer = vec![0; ANSWER_BYTES];
    for _ in 0..ANSWERS {
        let got = match recv(socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((got, _)) => got,
            Err(rustix::io::Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if !read_answer(&buffer[..got], take)? {
            return Ok(());
        }
    }
    Ok(())
}

/// Returns whether more answers follow.
fn read_answer(mut bytes: &[u8], take: &mut dyn FnMut(&Attributes)) -> io::Result<bool> {
    while let Some(header) = bytes.get(..HEADER_BYTES) {
        let length = u32_at(header, 0) as usize;
        let kind = u16_at(header, 4);
        let Some(body) = bytes.get(HEADER_BYTES..length) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        match kind {
            NLMSG_DONE => return Ok(false),
            NLMSG_ERROR => {
                let errno = i32::from_ne_bytes(u32_at(body, 0).to_ne_bytes());
                return if errno == 0 {
                    Ok(false)
                } else {
                    Err(io::Error::from_raw_os_error(errno.saturating_neg()))
                };
            }
            _ => take(&Attributes(body)),
        }
        let next = length.next_multiple_of(4).min(bytes.len());
        bytes = &bytes[next..];
    }
    Ok(true)
}

/// The attributes of one answer.
struct Attributes<'a>(&'a [u8]);

impl Attributes<'_> {
    fn find(&self, wanted: u16) -> Option<&[u8]> {
        let mut rest = self.0;
        while rest.len() >= ATTR_BYTES {
            let length = usize::from(u16_at(rest, 0));
            let kind = u16_at(rest, 2) & ATTR_TYPE_MASK;
            let value = rest.get(ATTR_BYTES..length)?;
            if kind == wanted {
                return Some(value);
            }
            rest = rest.get(length.next_multiple_of(4)..)?;
        }
        None
    }

    fn u32(&self, wanted: u16) -> Option<u32> {
        let value = self.find(wanted)?;
        (value.len() >= 4).then(|| u32_at(value, 0))
    }

    fn text(&self, wanted: u16) -> Option<String> {
        let value = self.find(wanted)?;
        let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
        String::from_utf8(value[..end].to_vec()).ok()
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes
        .get(at..at + 2)
        .map_or(0, |b| u16::from_ne_bytes([b[0], b[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_answer_is_read_as_it_is_written() {
        let attrs = [
            attribute(ATTR_DEV_INDEX, &7u32.to_ne_bytes()),
            attribute(ATTR_DEV_NAME, b"rxe0\0"),
        ];
        let mut seen = Vec::new();
        let more = read_answer(&request(CMD_GET, 0, &attrs), &mut |a| {
            seen.push((a.u32(ATTR_DEV_INDEX), a.text(ATTR_DEV_NAME)));
        });
        assert!(more.unwrap());
        assert_eq!(seen, [(Some(7), Some("rxe0".to_owned()))]);
    }

    #[test]
    fn an_error_is_an_error() {
        let mut message = request(CMD_GET, 0, &[(-22i32).to_ne_bytes().to_vec()]);
        message[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        let error = read_answer(&message, &mut |_| ()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(22));
    }

    #[test]
    fn software_drivers_have_names() {
        assert_eq!(module_of(14), Some("rdma_rxe"));
        assert_eq!(module_of(18), Some("siw"));
        assert_eq!(module_of(99), None);
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut answers = 0;
            let _ = read_answer(&bytes, &mut |a| { answers += 1; a.text(ATTR_DEV_NAME); });
            prop_assert!(answers <= bytes.len() / HEADER_BYTES);
        }
    }
}
