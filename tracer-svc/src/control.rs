//! Orders for the tracer that runs on this host, by its own service: `tracer-svc
//! detach` and `tracer-svc attach`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use rdmesh_proto::tracer::v1::tracer_service_client::TracerServiceClient;
use rdmesh_proto::tracer::v1::{AttachProbesRequest, DetachProbesRequest};
use rdmesh_services::causes::with_causes;
use rdmesh_services::server::ListenAddress;
use rdmesh_services::tls::{ConnectError, Expected, Tls};
use tonic::Code;
use tonic::transport::Endpoint;

use crate::service::Wish;

/// Longest wait for the answer: putting all probes on takes a second, and five on a
/// machine that has much else to do.
const LIMIT: Duration = Duration::from_secs(60);
/// Longest wait for the connection, on this host.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The order was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody listens.
    #[error(
        "no tracer answers at {address} ({error}); see `systemctl status rdmesh-tracer`, or name \
         its address with --listen"
    )]
    Unreachable {
        /// Where it should be.
        address: String,
        /// What the system said.
        error: String,
    },
    /// Whoever listens there did not answer as a tracer does.
    #[error(
        "{address} was asked and did not answer as a tracer does ({error}); it may have done it all \
         the same: see `systemctl status rdmesh-tracer`, or name the tracer's address with --listen"
    )]
    NoAnswer {
        /// Where it was asked.
        address: String,
        /// What came instead.
        error: String,
    },
    /// It says no.
    #[error("{0}")]
    Refused(String),
}

/// Where a tracer that listens there is reached from this host.
fn dialled(listen: &ListenAddress) -> String {
    let ListenAddress::Tcp(address) = listen else {
        return listen.to_string();
    };
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, address.port()))
}

/// Has the tracer of this host do it; gives what it did, for people.
///
/// # Errors
/// [`ControlError`].
pub async fn order(listen: &ListenAddress, tls: &Tls, wish: Wish) -> Result<String, ControlError> {
    order_within(LIMIT, listen, tls, wish).await
}

async fn order_within(
    limit: Duration,
    listen: &ListenAddress,
    tls: &Tls,
    wish: Wish,
) -> Result<String, ControlError> {
    let address = dialled(listen);
    let unreachable = |error: ConnectError| ControlError::Unreachable {
        address: address.clone(),
        error: with_causes(&error),
    };
    let endpoint = Endpoint::from_shared(address.clone())
        .map_err(|error| unreachable(error.into()))?
        .timeout(limit)
        .connect_timeout(CONNECT_LIMIT);
    let channel = match address.strip_prefix("http://") {
        // A Unix socket has no TLS.
        None => endpoint.connect().await.map_err(ConnectError::from),
        Some(at) => {
            // The service has this very certificate.
            let own = tls.live().map(|live| live.identity().name);
            let expected = Expected::AgentOf(own.unwrap_or_default());
            tls.connect_by_name(endpoint, at, expected).await
        }
    }
    .map_err(unreachable)?;
    let mut tracer = TracerServiceClient::new(channel);
    let refused = |status: tonic::Status| match status.code() {
        // Those that the tracer gives.
        Code::InvalidArgument
        | Code::NotFound
        | Code::FailedPrecondition
        | Code::PermissionDenied
        | Code::Unauthenticated => ControlError::Refused(status.message().to_owned()),
        _ => ControlError::NoAnswer {
            address: address.clone(),
            error: with_causes(&status),
        },
    };
    match wish {
        Wish::Detach(module) => {
            let request = DetachProbesRequest {
                module: module.clone().unwrap_or_default(),
            };
            let done = tracer.detach_probes(request).await.map_err(refused)?;
            Ok(detached(module.as_deref(), done.into_inner().detached))
        }
        Wish::Attach(module) => {
            let request = AttachProbesRequest {
                module: module.clone().unwrap_or_default(),
            };
            let done = tracer.attach_probes(request).await.map_err(refused)?;
            let report = done.get_ref().report.clone().unwrap_or_default();
            let (served, of) = (report.logical_attached, report.logical_total);
            let probes = done.get_ref().attached;
            let probes = match probes {
                0 => "no probe was missing".to_owned(),
                probes => format!("{probes} probes attached"),
            };
            Ok(format!(
                "{probes}; {served} of {of} logical hooks are served\n"
            ))
        }
    }
}

fn detached(module: Option<&str>, probes: u32) -> String {
    if probes == 0 {
        let of = module.map_or_else(String::new, |module| format!(" of {module}"));
        return format!("no probe{of} was attached; nothing to take off\n");
    }
    let what = module.unwrap_or("all RDMA modules");
    let back = match module {
        Some(module) => format!("it is loaded again, or by: tracer-svc attach {module}"),
        None => "their module is loaded again, or by: tracer-svc attach".to_owned(),
    };
    format!(
        "{probes} probes taken off {what}, which can be unloaded now. They come back when \
         {back}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tracer_that_listens_everywhere_is_dialled_here() {
        let dial = |listen: &str| dialled(&listen.parse().unwrap());
        assert_eq!(dial("0.0.0.0:7401"), "http://127.0.0.1:7401");
        assert_eq!(dial("[::]:7401"), "http://[::1]:7401");
        assert_eq!(dial("10.1.2.3:9"), "http://10.1.2.3:9");
        assert_eq!(dial("unix:/run/t.sock"), "unix:/run/t.sock");
    }

    #[tokio::test]
    async fn without_a_tracer_the_address_is_told() {
        let listen = "127.0.0.1:1".parse().unwrap();
        let error = order(&listen, &Tls::default(), Wish::Attach(None))
            .await
            .unwrap_err();
        assert!(error.to_string().contains("http://127.0.0.1:1"), "{error}");
    }
    /// What a tracer's user is told by whoever listens behind `socket`, or by nobody.
    fn said_by(listen: &str) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let wish = Wish::Detach(None);
        let (listen, tls) = (listen.parse().unwrap(), Tls::default());
        let answer = order_within(Duration::from_millis(300), &listen, &tls, wish);
        runtime.block_on(answer).unwrap_err().to_string()
    }

    #[test]
    fn where_no_tracer_listens_its_unit_and_the_cause_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let listen = format!("unix:{}", directory.path().join("gone.sock").display());
        let said = said_by(&listen);
        assert!(
            said.starts_with(&format!("no tracer answers at {listen} (")),
            "{said}"
        );
        assert!(said.contains("No such file or directory"), "{said}");
        assert!(said.contains("`systemctl status rdmesh-tracer`"), "{said}");
    }

    #[test]
    fn who_answers_otherwise_than_a_tracer_is_said_to_be_none() {
        let directory = tempfile::tempdir().unwrap();
        // One that accepts and is silent, and one that answers in another protocol.
        for (name, answer) in [("silent", ""), ("web", "HTTP/1.1 400 Bad Request\r\n\r\n")] {
            let path = directory.path().join(name);
            let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
            let server = std::thread::spawn(move || {
                let (mut peer, _) = socket.accept().unwrap();
                std::io::Write::write_all(&mut peer, answer.as_bytes()).unwrap();
                // Until the client hangs up.
                std::io::copy(&mut peer, &mut std::io::sink())
            });
            let said = said_by(&format!("unix:{}", path.display()));
            assert!(
                said.contains("did not answer as a tracer does (")
                    && said.contains("it may have done it all the same")
                    && said.contains("`systemctl status rdmesh-tracer`"),
                "{name}: {said}"
            );
            // A connection that is cut while it writes is no fault of the test.
            let _ = server.join().unwrap();
        }
    }
}
