//! An agent that is dialled itself, without a collector between.

use rdmesh_tls::Expected;
use tonic::transport::{Channel, Endpoint};

use crate::client::CONNECT_TIMEOUT;
use crate::endpoint::{AddressError, AddressSources, UNIX_PREFIX};
use crate::links::Links;

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum DialError {
    /// The text is no address.
    Address(AddressError),
    /// Nothing that speaks gRPC answers at the address, and why.
    Unreachable { address: String, reason: String },
}

/// Connects to `HOST[:PORT]` or `unix:/PATH`; gives the channel and what was dialled.
pub(crate) async fn dial(
    links: &Links,
    text: &str,
    port: u16,
) -> Result<(Channel, String), DialError> {
    let sources = AddressSources {
        flag: Some(with_port(text, port)),
        ..AddressSources::default()
    };
    let address = sources.resolve().map_err(DialError::Address)?;
    let unreachable = |reason: String| DialError::Unreachable {
        address: address.authority.clone(),
        reason,
    };
    let endpoint = Endpoint::from_shared(address.uri())
        .map_err(|error| unreachable(error.to_string()))?
        .tcp_nodelay(true);
    let expected = Expected::AgentAt(address.authority.clone());
    let connecting = links.connect(endpoint, &address.authority, expected);
    match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(Ok(channel)) => Ok((channel, address.authority.clone())),
        Ok(Err(why)) => Err(unreachable(why)),
        Err(_) => Err(unreachable(format!(
            "no connection within {} s",
            CONNECT_TIMEOUT.as_secs()
        ))),
    }
}

/// The text with a port where it names none.
fn with_port(text: &str, port: u16) -> String {
    let bare = text.trim();
    let has_port = match bare.rsplit_once(']') {
        Some((_, rest)) => rest.starts_with(':'),
        None => bare.trim_start_matches("http://").contains(':'),
    };
    if bare.is_empty() || bare.starts_with(UNIX_PREFIX) || has_port {
        bare.to_owned()
    } else {
        format!("{}:{port}", bare.trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agents_port_is_added_where_none_is_said() {
        for (text, address) in [
            ("dpu-1", "dpu-1:7402"),
            ("dpu-1:1", "dpu-1:1"),
            ("http://dpu-1/", "http://dpu-1:7402"),
            ("[fd00::1]", "[fd00::1]:7402"),
            ("[fd00::1]:9", "[fd00::1]:9"),
            ("unix:/run/s.sock", "unix:/run/s.sock"),
        ] {
            assert_eq!(with_port(text, 7402), address);
        }
    }
}
