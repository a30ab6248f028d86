//! Addresses: whether somebody answers there, over TLS where there are certificates.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rdmesh_tls::Expected;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use tokio::net::{TcpStream, UnixStream};
use tonic::metadata::MetadataMap;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::Question;
use super::files::under;
use crate::client::Client;
use crate::doctor::facts::{
    Answer, Certificate, DIAL_WITHIN, Dial, Dialled, Facts, Outcome, ServiceFacts, Settings,
};
use crate::endpoint::{AddressSource, CollectorAddress, UNIX_PREFIX};
use crate::error::innermost;
use crate::links::{Links, TlsSettings};

/// Dials what the configurations name, and what the caller names.
pub(super) async fn dial(question: &Question, facts: &mut Facts) {
    let mut dials = Vec::new();
    for here in facts.here() {
        let Some(settings) = here.settings.found() else {
            continue;
        };
        let whom = Dialled::Own(here.service);
        let expected = match settings.reports_of.first() {
            Some(host) => Expected::AgentOf(host.clone()),
            None => Expected::Collector,
        };
        let links = links_of(question, here, settings, true);
        dials.push(one(whom, &settings.listen, links, expected).await);
        for collector in &settings.collectors {
            let whom = Dialled::CollectorOf(here.service);
            let links = links_of(question, here, settings, false);
            dials.push(one(whom, collector, links, Expected::Collector).await);
        }
    }
    if let (Ok(address), Ok(tls)) = (&question.collector, &question.tls) {
        let is_told = address.source != AddressSource::Default;
        let has_another = facts.here().next().is_some();
        if is_told || !has_another {
            let links = own_links(tls, facts);
            let whom = Dialled::Collector;
            let expected = Expected::Collector;
            let dial = one(whom, &address.authority, links.clone(), expected).await;
            let is_there = matches!(dial.outcome, Outcome::Answered(_));
            if let (true, Ok(links), None) = (is_there, &links, facts.nccl.shaped) {
                facts.nccl.shaped = shaped(links, address, &facts.host).await;
            }
            dials.push(dial);
        }
    }
    facts.dials = dials;
}

/// Links as who looks makes them.
fn own_links(tls: &TlsSettings, facts: &Facts) -> Result<Links, String> {
    match facts.own.as_ref().and_then(Certificate::unreadable) {
        Some(why) => Err(unusable(why)),
        None => Links::open(tls.clone()).map_err(|error| error.to_string()),
    }
}

fn unusable(why: &str) -> String {
    format!("its certificate cannot be used: {why}")
}

/// Links as the service makes them. Its own address is this machine's, whatever it is.
fn links_of(
    question: &Question,
    here: &ServiceFacts,
    settings: &Settings,
    is_own: bool,
) -> Result<Links, String> {
    let Some(paths) = &settings.tls else {
        let insecure = is_own || settings.insecure_dial;
        let tls = TlsSettings {
            insecure,
            ..TlsSettings::default()
        };
        return Links::open(tls).map_err(|error| error.to_string());
    };
    // A pipe in place of a file would be waited for.
    if let Some(why) = here.certificate.as_ref().and_then(Certificate::unreadable) {
        return Err(unusable(why));
    }
    let [ca, certificate, key] = paths.clone().map(|path| Some(under(&question.root, path)));
    Links::open(TlsSettings {
        ca,
        certificate,
        key,
        insecure: false,
    })
    .map_err(|error| unusable(&error.to_string()))
}

async fn one(
    whom: Dialled,
    address: &str,
    links: Result<Links, String>,
    expected: Expected,
) -> Dial {
    let outcome = match (links, dialled(address)) {
        (Err(why), _) | (_, Err(why)) => Outcome::NotTried(why),
        (Ok(links), Ok(authority)) => {
            let asked = ask(&links, &authority, expected);
            match tokio::time::timeout(DIAL_WITHIN, asked).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    let seconds = DIAL_WITHIN.as_secs();
                    Outcome::Nobody(format!("no answer within {seconds} s"))
                }
            }
        }
    };
    Dial {
        whom,
        address: address.to_owned(),
        outcome,
    }
}

/// What is dialled to reach an address that is listened on: `0.0.0.0` is everywhere, and
/// therefore loopback.
fn dialled(address: &str) -> Result<String, String> {
    if let Ok(at) = address.parse::<std::net::SocketAddr>() {
        if at.port() == 0 {
            return Err(
                "port 0 takes a free one each time; the service's log tells which".to_owned(),
            );
        }
        let ip = match at.ip() {
            std::net::IpAddr::V4(ip) if ip.is_unspecified() => std::net::Ipv4Addr::LOCALHOST.into(),
            std::net::IpAddr::V6(ip) if ip.is_unspecified() => std::net::Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        return Ok(std::net::SocketAddr::new(ip, at.port()).to_string());
    }
    let parsed: Result<CollectorAddress, _> = address.parse();
    parsed
        .map(|address| address.authority)
        .map_err(|error| error.to_string())
}

async fn ask(links: &Links, authority: &str, expected: Expected) -> Outcome {
    // Whether anybody is there at all, before it is asked who.
    let reached = match authority.strip_prefix(UNIX_PREFIX) {
        Some(path) => UnixStream::connect(path).await.map(drop),
        None => TcpStream::connect(authority).await.map(drop),
    };
    if let Err(error) = reached {
        return Outcome::Nobody(error.to_string());
    }
    let uri = match authority.starts_with(UNIX_PREFIX) {
        true => authority.to_owned(),
        false => format!("http://{authority}"),
    };
    let endpoint = match Endpoint::from_shared(uri) {
        Ok(endpoint) => endpoint.tcp_nodelay(true),
        Err(error) => return Outcome::NotTried(error.to_string()),
    };
    let channel = match links.connect(endpoint, authority, expected).await {
        Ok(channel) => channel,
        Err(why) => return Outcome::Refused(why),
    };
    let mut answer = Answer {
        has_tls: links.have_tls() && !authority.starts_with(UNIX_PREFIX),
        ..Answer::default()
    };
    let asked_at = Instant::now();
    let health = HealthClient::new(channel)
        .check(HealthCheckRequest::default())
        .await;
    let took = asked_at.elapsed();
    let metadata = match &health {
        Ok(health) => {
            answer.serves = health.get_ref().status() == ServingStatus::Serving;
            health.metadata()
        }
        Err(status) => {
            let why = match std::error::Error::source(status) {
                Some(source) => innermost(source).to_string(),
                None => status.message().to_owned(),
            };
            return Outcome::Refused(why);
        }
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now.map_or(0, |now| now.as_millis());
    // Half way, as far as one can know.
    let there_ms = now_ms.saturating_sub(took.as_millis() / 2);
    answer.ahead_ms = i64::try_from(there_ms)
        .ok()
        .and_then(|there| ahead_ms(metadata, there));
    Outcome::Answered(answer)
}

/// How far this clock is ahead of the one of who answered, by the second that the answer names:
/// its middle is as likely as any other moment of it.
fn ahead_ms(metadata: &MetadataMap, here_ms: i64) -> Option<i64> {
    let date = metadata.get("date")?.to_str().ok()?;
    let there = OffsetDateTime::parse(date, &Rfc2822).ok()?.unix_timestamp();
    let there_ms = there.checked_mul(1_000)?.checked_add(500)?;
    here_ms.checked_sub(there_ms)
}

/// Whether the collector knows of a wire that shapes this host; absent: it does not say.
async fn shaped(links: &Links, address: &CollectorAddress, host: &str) -> Option<bool> {
    if host.is_empty() {
        return None;
    }
    let asked = async {
        let client = Client::connect_over(links, address.clone()).await.ok()?;
        let wires = client.list_wires(host, "", true).await.ok()?;
        Some(!wires.is_empty())
    };
    tokio::time::timeout(DIAL_WITHIN, asked).await.ok()?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_reached_at_loopback() {
        assert_eq!(dialled("0.0.0.0:7401").unwrap(), "127.0.0.1:7401");
        assert_eq!(dialled("[::]:7401").unwrap(), "[::1]:7401");
        assert_eq!(dialled("10.0.0.1:7401").unwrap(), "10.0.0.1:7401");
        assert_eq!(dialled("http://c:1").unwrap(), "c:1");
        assert_eq!(dialled("unix:/run/t.sock").unwrap(), "unix:/run/t.sock");
        for bad in ["a b", "127.0.0.1:0", ""] {
            assert!(dialled(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_offset_is_told_from_the_date_of_the_answer() {
        let of = |date: &str, here_ms| {
            let mut metadata = MetadataMap::new();
            metadata.insert("date", date.parse().unwrap());
            ahead_ms(&metadata, here_ms)
        };
        let date = "Thu, 01 Jan 1970 00:01:40 GMT";
        assert_eq!(of(date, 100_500), Some(0));
        assert_eq!(of(date, 103_000), Some(2_500));
        assert_eq!(of(date, 40_500), Some(-60_000));
        assert_eq!(of("yesterday", 0), None);
        assert_eq!(ahead_ms(&MetadataMap::new(), 0), None);
    }
}
