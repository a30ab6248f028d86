//! What a service is told: its file, then the variables and the flags of its process, as
//! `services/src/config` lays them over one another. Only what the checks ask is read, and
//! leniently: whether a configuration is right is the program's own to say.

use std::path::PathBuf;

use toml::{Table, Value};

use super::process::Told;
use crate::doctor::facts::{Service, Settings};

/// Mebibytes of a spool unless told otherwise.
const SPOOL_MAX_MIB: u64 = 256;

/// Where services keep what outlives them.
const STATE: &str = "/var/lib/rdmesh";

/// The file that a process was given in place of the default one.
pub(super) fn named_file(arguments: &[String]) -> Option<PathBuf> {
    let given = flags(arguments).filter(|(name, _)| *name == "--config");
    given.map(|(_, value)| PathBuf::from(value)).last()
}

/// What is in force, as far as it can be seen. `host` is the machine's name.
///
/// # Errors
/// The file is no TOML, and where.
pub(super) fn settings(
    service: Service,
    text: &str,
    told: Option<&Told>,
    host: &str,
) -> Result<Settings, String> {
    let mut table: Table = toml::from_str(text).map_err(|error| error.to_string())?;
    if let Some(told) = told {
        lay_variables(&mut table, service, &told.variables);
        lay_flags(&mut table, service, &told.arguments);
    }
    let at = |key: &str| text_at(&table, key).filter(|text| !text.is_empty());
    let is_set = |key: &str| value_at(&table, key).and_then(Value::as_bool) == Some(true);
    let or_host = |key: &str| at(key).unwrap_or(host).to_owned();
    let reports_of = match service {
        Service::Tracer => vec![or_host("host")],
        Service::Shaper => vec![or_host("name"), or_host("host")],
        Service::Collector => Vec::new(),
    };
    let (spool, spool_is_named) = match at("uplink.spool.directory") {
        Some(named) => (PathBuf::from(named), true),
        None if service.reports() => (state_directory(service, &table).join("spool"), false),
        None => (PathBuf::new(), false),
    };
    let max_mib = value_at(&table, "uplink.spool.max_mib").and_then(Value::as_integer);
    Ok(Settings {
        reports_of,
        listen: at("server.listen")
            .map_or_else(|| format!("127.0.0.1:{}", service.port()), str::to_owned),
        insecure_listen: is_set("server.insecure_listen"),
        insecure_dial: is_set("tls.insecure_dial"),
        collectors: collectors(service, at("uplink.collector")),
        tls: files(at),
        spool,
        spool_is_named,
        spool_max_mib: max_mib.map_or(SPOOL_MAX_MIB, |mib| u64::try_from(mib).unwrap_or(0)),
        wires: value_at(&table, "wires")
            .and_then(Value::as_array)
            .map_or(0, Vec::len),
    })
}

fn state_directory(service: Service, table: &Table) -> PathBuf {
    let named = text_at(table, "state_directory").filter(|_| service == Service::Shaper);
    match named.filter(|text| !text.is_empty()) {
        Some(named) => PathBuf::from(named),
        None => PathBuf::from(STATE).join(service.short()),
    }
}

fn collectors(service: Service, named: Option<&str>) -> Vec<String> {
    if !service.reports() {
        return Vec::new();
    }
    let named = named.unwrap_or(crate::endpoint::DEFAULT_ADDRESS).split(',');
    let named = named.map(str::trim).filter(|address| !address.is_empty());
    named.map(str::to_owned).collect()
}

/// ca, certificate and key, where one of them is named.
fn files<'a>(at: impl Fn(&str) -> Option<&'a str>) -> Option<[PathBuf; 3]> {
    let named = ["tls.ca", "tls.certificate", "tls.key"].map(at);
    let is_any = named.iter().any(Option::is_some);
    is_any.then(|| named.map(|path| PathBuf::from(path.unwrap_or_default())))
}

fn lay_variables(table: &mut Table, service: Service, variables: &[(String, String)]) {
    let prefix = format!("RDMESH_{}__", service.short().to_uppercase());
    let mut sorted: Vec<_> = variables.iter().collect();
    sorted.sort();
    for (name, value) in sorted {
        if let Some(rest) = name.strip_prefix(&prefix) {
            put(table, &rest.to_lowercase().replace("__", "."), value);
        }
    }
}

/// `--set` first, then a service's own flags, which win.
fn lay_flags(table: &mut Table, service: Service, arguments: &[String]) {
    for (_, value) in flags(arguments).filter(|(name, _)| *name == "--set") {
        if let Some((key, value)) = value.split_once('=') {
            put(table, key.trim(), value);
        }
    }
    for (name, value) in flags(arguments) {
        match (name, service) {
            ("--listen", _) => put(table, "server.listen", value),
            ("--collector", Service::Tracer) => put(table, "uplink.collector", value),
            ("--host", Service::Tracer) => put(table, "host", value),
            _ => {}
        }
    }
}

/// `--name value` and `--name=value`.
fn flags(arguments: &[String]) -> impl Iterator<Item = (&str, &str)> {
    arguments
        .iter()
        .enumerate()
        .filter_map(move |(at, argument)| {
            if !argument.starts_with("--") {
                return None;
            }
            match argument.split_once('=') {
                // `--set key=value` has its own sign behind a space.
                Some((name, value)) => Some((name, value)),
                None => Some((argument.as_str(), arguments.get(at + 1)?.as_str())),
            }
        })
}

/// As TOML where it is that, else as text.
fn put(table: &mut Table, key: &str, text: &str) {
    let parsed = toml::from_str::<Table>(&format!("value = {text}"));
    let parsed = parsed.ok().and_then(|mut table| table.remove("value"));
    let value = match parsed {
        // An address or a name is never a number, a time or a list to these checks.
        Some(value @ (Value::Boolean(_) | Value::Integer(_) | Value::Array(_))) => value,
        Some(Value::String(text)) => Value::String(text),
        _ => Value::String(text.to_owned()),
    };
    let (sections, name) = key.rsplit_once('.').unwrap_or(("", key));
    let mut inner = table;
    for section in sections.split('.').filter(|section| !section.is_empty()) {
        let entry = inner
            .entry(section)
            .or_insert_with(|| Value::Table(Table::new()));
        match entry {
            Value::Table(next) => inner = next,
            // The program refuses it.
            _ => return,
        }
    }
    inner.insert(name.to_owned(), value);
}

fn value_at<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    let mut parts = key.split('.');
    let mut value = table.get(parts.next()?)?;
    for part in parts {
        value = value.as_table()?.get(part)?;
    }
    Some(value)
}

fn text_at<'a>(table: &'a Table, key: &str) -> Option<&'a str> {
    value_at(table, key).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(arguments: &[&str], variables: &[(&str, &str)]) -> Told {
        let owned = |text: &&str| (*text).to_owned();
        Told {
            arguments: arguments.iter().map(owned).collect(),
            variables: variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..Told::default()
        }
    }

    #[test]
    fn flags_lie_over_variables_and_those_over_the_file() {
        let text = "[uplink]\ncollector = \"a:1, b:2\"\n[server]\nlisten = \"0.0.0.0:1\"\n";
        let plain = settings(Service::Tracer, text, None, "gpu-01").unwrap();
        assert_eq!(plain.collectors, ["a:1", "b:2"]);
        assert_eq!(plain.reports_of, ["gpu-01"]);
        assert_eq!(plain.spool, PathBuf::from("/var/lib/rdmesh/tracer/spool"));
        assert_eq!((plain.tls.is_none(), plain.spool_max_mib), (true, 256));
        let told = told(
            &[
                "tracer-svc",
                "--collector=c:3",
                "--set",
                "tls.insecure_dial=true",
                "--set",
                "uplink.spool.max_mib=8",
                "--config",
                "/x.toml",
            ],
            &[
                ("RDMESH_TRACER__UPLINK__COLLECTOR", "v:4"),
                ("RDMESH_TRACER__SERVER__LISTEN", "unix:/run/t.sock"),
                ("RDMESH_TRACER__TLS__CA", "/ca.crt"),
                ("RDMESH_SHAPER__HOST", "not ours"),
            ],
        );
        assert_eq!(named_file(&told.arguments), Some("/x.toml".into()));
        let over = settings(Service::Tracer, text, Some(&told), "gpu-01").unwrap();
        assert_eq!(over.collectors, ["c:3"]);
        assert_eq!(over.listen, "unix:/run/t.sock");
        assert!(over.insecure_dial && !over.insecure_listen);
        assert_eq!(over.spool_max_mib, 8);
        assert_eq!(over.tls.unwrap()[0], PathBuf::from("/ca.crt"));
    }

    #[test]
    fn each_service_has_its_own_defaults() {
        let of = |service, text| settings(service, text, None, "dpu-1").unwrap();
        let shaper = of(
            Service::Shaper,
            "host = \"gpu-1\"\nstate_directory = \"/s\"\n[[wires]]\nname = \"vf0\"\n",
        );
        assert_eq!(shaper.reports_of, ["dpu-1", "gpu-1"]);
        assert_eq!(shaper.spool, PathBuf::from("/s/spool"));
        assert_eq!(
            (shaper.listen.as_str(), shaper.wires),
            ("127.0.0.1:7402", 1)
        );
        let collector = of(Service::Collector, "");
        assert_eq!(collector.listen, "127.0.0.1:7400");
        assert!(collector.collectors.is_empty() && collector.spool == PathBuf::new());
    }

    #[test]
    fn garbage_is_an_error_or_a_default_and_never_a_panic() {
        let error = settings(Service::Tracer, "[server\n", None, "h").unwrap_err();
        assert!(error.contains("line 1"), "{error}");
        let odd = "server = 5\nuplink = [1]\nhost = 7\ntls = { ca = true }\nwires = \"x\"\n";
        let told = told(
            &[
                "tracer-svc",
                "--set",
                "server.listen=x",
                "--set",
                "=",
                "--set",
            ],
            &[("RDMESH_TRACER____", "x"), ("RDMESH_TRACER__", "[")],
        );
        let lenient = settings(Service::Tracer, odd, Some(&told), "h").unwrap();
        assert_eq!(lenient.listen, "127.0.0.1:7401");
        assert_eq!(lenient.reports_of, ["h"]);
    }
}
