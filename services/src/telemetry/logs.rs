//! Logs: text for people, JSON for machines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::{TelemetryConfig, TelemetryError};

/// Reads a filter.
pub(crate) fn filter(text: &str) -> Result<EnvFilter, TelemetryError> {
    let refuse = |why: String| TelemetryError::Filter {
        filter: text.to_owned(),
        why,
    };
    // EnvFilter takes a mistyped level ("inof") for a target of that name and then
    // shows nothing: a directive without `=` must be a level.
    for part in text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
    {
        let is_level = part
            .parse::<tracing_subscriber::filter::LevelFilter>()
            .is_ok();
        if !is_level && !part.contains(['=', ':', '[']) {
            return Err(refuse(format!(
                "`{part}` is no level (error, warn, info, debug, trace)"
            )));
        }
    }
    EnvFilter::try_new(text).map_err(|e| refuse(e.to_string()))
}

/// Installs the subscriber of the process.
pub(crate) fn install(config: &TelemetryConfig) -> Result<(), TelemetryError> {
    let terminal = std::io::stderr().is_terminal();
    let json = match config.log_format.as_str() {
        "json" => true,
        "text" => false,
        _ => !terminal,
    };
    let registry = tracing_subscriber::registry().with(filter(&config.log)?);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let installed = if json {
        registry.with(layer.json().flatten_event(true)).try_init()
    } else {
        registry.with(layer.with_ansi(terminal)).try_init()
    };
    installed.map_err(|_| TelemetryError::Twice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_targets_are_taken() {
        for text in [
            "info",
            "warn,rdmesh_services::uplink=debug",
            "off",
            "DEBUG",
            "h2=off,info",
        ] {
            assert!(filter(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn a_mistyped_level_is_refused() {
        let message = filter("inof").unwrap_err().to_string();
        assert!(message.contains("`inof` is no level"), "{message}");
        assert!(filter("a=loud").is_err());
    }
}
