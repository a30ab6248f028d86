//! The kernel's messages about modules and devices that come and go.

use std::io;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use tokio::net::UnixDatagram;

/// Bytes of one message: the kernel builds it in a buffer of 2 KiB
/// (`UEVENT_BUFFER_SIZE`) behind a header of a path.
const MESSAGE_BYTES: usize = 8192;

/// Multicast group of the kernel itself; group 2 is udev's.
const KERNEL_GROUP: u32 = 1;

/// A socket that hears the kernel's messages. It wakes the tracer for each of
/// them, which on a host at rest are none.
#[derive(Debug)]
pub struct Uevents {
    /// A netlink socket. The type only owns, polls and receives, which is the
    /// same for every datagram socket, and needs no unsafe code to be made.
    socket: UnixDatagram,
    buffer: Vec<u8>,
}

impl Uevents {
    /// Opens the socket. Needs a tokio runtime with I/O.
    ///
    /// # Errors
    /// The kernel refuses it, as inside some containers; the slow scan then
    /// finds new modules alone.
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            flags,
            Some(netlink::KOBJECT_UEVENT),
        )?;
        bind(&socket, &SocketAddrNetlink::new(0, KERNEL_GROUP))?;
        Ok(Self {
            socket: UnixDatagram::from_std(socket.into())?,
            buffer: vec![0; MESSAGE_BYTES],
        })
    }

    /// Completes when a module or an RDMA device has come or gone. Cancel safe.
    ///
    /// # Errors
    /// The socket broke.
    pub async fn changed(&mut self) -> io::Result<()> {
        loop {
            match self.socket.recv(&mut self.buffer).await {
                Ok(got) if concerns_rdma(&self.buffer[..got]) => return Ok(()),
                Ok(_) => {}
                // Messages were lost: some of them may have concerned us.
                Err(error)
                    if rustix::io::Errno::from_io_error(&error)
                        == Some(rustix::io::Errno::NOBUFS) =>
                {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// `ACTION@DEVPATH\0KEY=VALUE\0…`: modules, and devices of the RDMA classes. A
/// message of udev begins with "libudev" and is not the kernel's.
fn concerns_rdma(message: &[u8]) -> bool {
    let mut fields = message.split(|b| *b == 0);
    let Some(action) = fields
        .next()
        .and_then(|head| head.split(|b| *b == b'@').next())
    else {
        return false;
    };
    let comes_or_goes = [b"add".as_slice(), b"remove", b"bind", b"unbind"].contains(&action);
    comes_or_goes
        && fields.any(|f| {
            let subsystem = f.strip_prefix(b"SUBSYSTEM=".as_slice());
            subsystem.is_some_and(|s| {
                [b"module".as_slice(), b"infiniband", b"infiniband_verbs"].contains(&s)
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_and_devices_concern_us_and_disks_do_not() {
        let message = |text: &str| concerns_rdma(text.replace(' ', "\0").as_bytes());
        assert!(message(
            "add@/module/mlx5_ib ACTION=add DEVPATH=/module/mlx5_ib SUBSYSTEM=module SEQNUM=4"
        ));
        assert!(message(
            "add@/devices/x/infiniband/rxe0 ACTION=add SUBSYSTEM=infiniband"
        ));
        assert!(message("remove@/module/rdma_rxe SUBSYSTEM=module"));
        assert!(!message("add@/block/sda ACTION=add SUBSYSTEM=block"));
        assert!(!message("change@/module/x SUBSYSTEM=module"));
        assert!(!message("libudev add@/x SUBSYSTEM=module"));
        assert!(!concerns_rdma(b""));
    }
}
