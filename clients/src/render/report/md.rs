//! The report as Markdown, as trackers read it.

use rdmesh_client::Moment;

use super::super::printable::printable;
use super::{
    MAX_TOTALS, Report, events, facts, heading, host_name, left_out, missing, sentence, told,
};
use crate::render::errno_text;

/// A text that no tracker takes for markup, on one line.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            // Mentions and references to other tickets notify people.
            '@' => out.push_str("&#64;"),
            '#' => out.push_str("&#35;"),
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '(' | ')' | '!' | '|' | '~' | '$' => {
                out.push('\\');
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    // What a line may begin with, and bare addresses.
    match out.chars().next() {
        Some('-' | '+' | '=' | ':') => out.insert(0, '\\'),
        Some(first) if first.is_ascii_digit() => {
            let end = out.find(|c: char| !c.is_ascii_digit());
            if let Some(end) = end.filter(|end| out[*end..].starts_with('.')) {
                out.insert(end, '\\');
            }
        }
        _ => {}
    }
    out.replace("://", ":\u{2060}//").replace("www.", "www\\.")
}

/// The whole report. `now` is when it was made.
pub(crate) fn text(report: &Report, now: Moment) -> String {
    let verdict = &report.diagnosis.verdict;
    let mut out = format!("## {}\n\n", escaped(&heading(&report.diagnosis)));
    out.push_str(&format!(
        "**{}**\n\n",
        escaped(&sentence(&report.diagnosis))
    ));
    out.push_str("| | |\n|---|---|\n");
    for (name, value) in facts(&report.diagnosis) {
        out.push_str(&format!("| {name} | {} |\n", escaped(&value)));
    }
    if let Some(meaning) = &verdict.meaning {
        out.push_str(&format!("\n### What it means\n\n{}\n", escaped(meaning)));
    }
    if !verdict.next_steps.is_empty() {
        out.push_str("\n### Check next\n\n");
        for (number, step) in (1_u32..).zip(&verdict.next_steps) {
            out.push_str(&format!("{number}. {}\n", escaped(step)));
        }
    }
    out.push_str(&list("Evidence", &verdict.evidence));
    out.push_str(&list("Against it", &verdict.against));
    out.push_str(&list("Not watched", &verdict.unwatched));
    out.push_str(&timeline(report));
    out.push_str(&totals(report));
    out.push_str(&format!(
        "\n---\nrdmesh {}, {}\n",
        env!("CARGO_PKG_VERSION"),
        now.to_seconds_text()
    ));
    out
}

fn list(title: &str, items: &[String]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let lines = items.iter().map(|item| format!("- {}\n", escaped(item)));
    format!("\n### {title}\n\n{}", lines.collect::<String>())
}

fn timeline(report: &Report) -> String {
    let mut out = "\n### Timeline\n".to_owned();
    for host in told(&report.timeline) {
        out.push_str(&format!(
            "\n**{}**\n\n| time | where | what |\n|---|---|---|\n",
            escaped(host_name(host))
        ));
        for event in events(host, &report.diagnosis) {
            let at = event.at.map(Moment::to_millis_text).unwrap_or_default();
            let text = escaped(&event.text);
            let text = match event.decides {
                true => format!("**{text}**"),
                false => text,
            };
            out.push_str(&format!("| {at} | {} | {text} |\n", event.lane));
        }
        match left_out(host) {
            0 => {}
            more => out.push_str(&format!("\n{more} later events of it are not listed.\n")),
        }
    }
    for line in missing(&report.timeline) {
        out.push_str(&format!("\n{}\n", escaped(&line)));
    }
    out
}

fn totals(report: &Report) -> String {
    let totals = &report.diagnosis.totals;
    if totals.is_empty() {
        return String::new();
    }
    let mut out =
        "\n### Failing returns\n\n| host | layer | function | errno | count |\n|---|---|---|---|---:|\n"
            .to_owned();
    for total in totals.iter().take(MAX_TOTALS) {
        out.push_str(&format!(
            "| {} | {} | {} | {} | {} |\n",
            escaped(&total.host),
            total.layer.name(),
            escaped(&total.function),
            escaped(&errno_text(total.errno, total.errno_name.as_deref())),
            total.count
        ));
    }
    if totals.len() > MAX_TOTALS {
        out.push_str(&format!(
            "\n{} more are not listed.\n",
            totals.len() - MAX_TOTALS
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    #[test]
    fn an_unmapped_address_as_markdown() {
        insta::assert_snapshot!(text(&samples::report(), samples::now()));
    }

    #[test]
    fn hostile_text_is_no_markup() {
        let out = text(&samples::hostile_report(), samples::now());
        assert!(!out.contains('\u{1b}') && !out.contains("<script"), "{out}");
        assert!(!out.contains("](") && !out.contains("@all"), "{out}");
        insta::assert_snapshot!(out);
    }

    #[test]
    fn what_markup_begins_with_is_escaped() {
        assert_eq!(escaped("a|b*c_d`e"), "a\\|b\\*c\\_d\\`e");
        assert_eq!(escaped("- x"), "\\- x");
        assert_eq!(escaped("1. x"), "1\\. x");
        assert_eq!(escaped("<img src=x>"), "&lt;img src=x&gt;");
        assert_eq!(escaped("two\nlines"), "two\\\\nlines");
        assert_eq!(escaped("@team #7"), "&#64;team &#35;7");
    }
}
