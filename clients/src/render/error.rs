//! Errors on stderr.

use super::printable::printable;
use super::wrap::wrap;
use super::{Ink, Style};
use crate::exit::ErrorReport;

/// What went wrong, and on a line of its own what to do.
pub(crate) fn text(report: &ErrorReport, style: &Style) -> String {
    let columns = style.prose_columns();
    let lead = "rdmesh: ";
    // Parsers point at columns, so their lines are kept as they are.
    let mut out = String::new();
    for (index, line) in report.message.lines().enumerate() {
        let line = printable(line);
        match index {
            0 => out.push_str(&wrap(&line, lead, columns)),
            _ => out.push_str(&format!("  {line}\n")),
        }
    }
    if style.color && out.starts_with(lead) {
        out.replace_range(..lead.len(), &style.paint(Ink::Bad, lead));
    }
    if let Some(next) = &report.next {
        out.push_str(&wrap(&printable(next), "  next: ", columns));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::CommandError;
    use rdmesh_client::ClientError;
    use rdmesh_client::endpoint::{AddressSource, AddressSources};
    use std::path::PathBuf;

    fn shown(error: impl Into<CommandError>) -> String {
        text(&error.into().report(), &Style::PLAIN)
    }

    #[test]
    fn every_error_says_what_to_do() {
        let address = AddressSources::default().resolve().unwrap();
        let mut by_file = address.clone();
        by_file.source = AddressSource::File(PathBuf::from("/etc/rdmesh/cli.toml"));
        let refused = "Connection refused (os error 111)".to_owned();
        let sources = AddressSources {
            flag: Some("a b".into()),
            ..AddressSources::default()
        };
        let all = [
            shown(ClientError::Unreachable {
                address: address.clone(),
                reason: refused.clone(),
            }),
            shown(ClientError::Unreachable {
                address: by_file,
                reason: refused,
            }),
            shown(ClientError::Timeout {
                address: address.clone(),
                limit: std::time::Duration::from_secs(15),
            }),
            shown(ClientError::NotFound {
                what: "job 4711".into(),
                reason: "no job \u{1b}[31m4711".into(),
                listed_by: "rdmesh job list",
            }),
            shown(ClientError::from(sources.resolve().unwrap_err())),
            shown(ClientError::Invalid(
                "host: 300 bytes, 253 are allowed".into(),
            )),
            shown(ClientError::Busy {
                reason: "the database does not answer".into(),
                retry_after: None,
            }),
            shown(ClientError::TooSlow("the query took more than 5 s".into())),
            shown(ClientError::Denied("readers cannot end jobs".into())),
            shown(ClientError::Unsupported {
                address: address.clone(),
                reason: "rdmesh.collector.v1.QueryService".into(),
            }),
            shown(ClientError::Unsupported {
                address,
                reason: String::new(),
            }),
            shown(ClientError::BadAnswer {
                field: "job",
                reason: "it is missing".into(),
            }),
            shown(CommandError::Output(std::io::Error::from_raw_os_error(28))),
        ];
        insta::assert_snapshot!(all.join("\n"));
    }
}
