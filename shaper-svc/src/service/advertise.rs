//! Where the collector can dial this service, as the Hello tells it.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use rdmesh_services::server::ListenAddress;
use rdmesh_services::tls::Tls;
use rdmesh_services::uplink::{CollectorAddresses, Dial, Dialing, Surroundings, UplinkConfig};
use tokio::net::{UdpSocket, lookup_host};

/// What a Hello says. Cheap to clone.
///
/// What the configuration says comes first. Else a service that listens on any address
/// tells the one from which this machine reaches the collector, looked up for each
/// connection, and its own name where that is not known. One that listens on loopback
/// tells that only to a collector of this machine.
#[derive(Clone, Debug)]
pub struct Advertised {
    configured: String,
    listen: ListenAddress,
    name: String,
    /// This end of the way to the collector.
    local: Arc<Mutex<Option<IpAddr>>>,
}

impl Advertised {
    /// `configured` as in the configuration, or empty; `listen` with its real port;
    /// `name` of this machine.
    #[must_use]
    pub fn new(configured: &str, listen: ListenAddress, name: &str) -> Self {
        Self {
            configured: configured.to_owned(),
            listen,
            name: name.to_owned(),
            local: Arc::default(),
        }
    }

    /// `HOST:PORT`, or nothing.
    #[must_use]
    pub fn address(&self) -> String {
        if !self.configured.is_empty() {
            return self.configured.clone();
        }
        let local = *self.local.lock().unwrap_or_else(PoisonError::into_inner);
        match (&self.listen, local) {
            (ListenAddress::Unix(_), _) => String::new(),
            (ListenAddress::Tcp(at), Some(ip)) if at.ip().is_unspecified() => {
                SocketAddr::new(ip, at.port()).to_string()
            }
            (ListenAddress::Tcp(at), None) if at.ip().is_unspecified() => {
                format!("{}:{}", self.name, at.port())
            }
            // Elsewhere it would be another machine's own.
            (ListenAddress::Tcp(at), Some(ip)) if at.ip().is_loopback() && !ip.is_loopback() => {
                String::new()
            }
            (ListenAddress::Tcp(at), _) => at.to_string(),
        }
    }

    /// The real surroundings of an uplink, whose connections tell this end of the way.
    #[must_use]
    pub fn surroundings(&self, config: &UplinkConfig, tls: &Tls) -> Surroundings {
        let real = Surroundings::over(config, tls);
        Surroundings {
            dialer: Box::new(LookingDialer {
                inner: real.dialer,
                collectors: config.collector.clone(),
                local: Arc::clone(&self.local),
            }),
            ..real
        }
    }
}

/// Looks which address of this machine the collector sees, then dials.
#[derive(Debug)]
struct LookingDialer {
    inner: Box<dyn Dial>,
    collectors: CollectorAddresses,
    local: Arc<Mutex<Option<IpAddr>>>,
}

impl Dial for LookingDialer {
    fn dial(&self) -> Dialing<'_> {
        Box::pin(async {
            let mut local = None;
            for collector in self.collectors.iter() {
                local = local_ip_towards(&collector.to_string()).await;
                if local.is_some() {
                    break;
                }
            }
            *self.local.lock().unwrap_or_else(PoisonError::into_inner) = local;
            self.inner.dial().await
        })
    }
}

/// Asks the kernel for the way. A UDP socket that is connected sends nothing.
async fn local_ip_towards(collector: &str) -> Option<IpAddr> {
    for to in lookup_host(collector).await.ok()? {
        let any: SocketAddr = if to.is_ipv4() {
            ([0; 4], 0).into()
        } else {
            ([0_u16; 8], 0).into()
        };
        let Ok(socket) = UdpSocket::bind(any).await else {
            continue;
        };
        if socket.connect(to).await.is_ok() {
            return socket.local_addr().ok().map(|at| at.ip());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advertised(configured: &str, listen: &str, local: Option<&str>) -> String {
        let listen = listen.parse().unwrap();
        let advertised = Advertised::new(configured, listen, "dpu-1");
        *advertised.local.lock().unwrap() = local.map(|ip| ip.parse().unwrap());
        advertised.address()
    }

    #[test]
    fn what_the_collector_can_dial_is_told_and_nothing_else() {
        for (configured, listen, local, told) in [
            ("", "0.0.0.0:7402", Some("10.0.0.7"), "10.0.0.7:7402"),
            ("", "[::]:7402", Some("fd00::7"), "[fd00::7]:7402"),
            ("", "0.0.0.0:7402", None, "dpu-1:7402"),
            ("", "0.0.0.0:7402", Some("127.0.0.1"), "127.0.0.1:7402"),
            ("", "10.1.0.7:7402", Some("10.0.0.7"), "10.1.0.7:7402"),
            ("", "127.0.0.1:7402", Some("127.0.0.1"), "127.0.0.1:7402"),
            ("", "127.0.0.1:7402", Some("10.0.0.7"), ""),
            ("", "unix:/run/s.sock", Some("10.0.0.7"), ""),
            ("dpu:7", "0.0.0.0:7402", Some("10.0.0.7"), "dpu:7"),
            ("dpu:7", "127.0.0.1:7402", None, "dpu:7"),
        ] {
            assert_eq!(
                advertised(configured, listen, local),
                told,
                "{listen} {local:?}"
            );
        }
    }

    #[tokio::test]
    async fn the_kernel_is_asked_for_the_way() {
        let local = local_ip_towards("127.0.0.1:7400").await;
        assert_eq!(local, "127.0.0.1".parse().ok());
        let local = local_ip_towards("[::1]:7400").await;
        assert!(local.is_none_or(|ip| ip.is_loopback()), "{local:?}");
        assert_eq!(local_ip_towards("no.such.name.invalid:7400").await, None);
    }
}
