//! The report as one page that holds all it needs: no script, and nothing from elsewhere.

use rdmesh_client::Moment;
use rdmesh_client::model::verdict::{Confidence, VerdictClass};

use super::super::printable::printable;
use super::{
    MAX_TOTALS, Report, drawing, events, facts, heading, host_name, left_out, missing, sentence,
    told,
};
use crate::render::errno_text;

/// Nothing may be loaded, whatever a text makes of itself.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--quiet:#59636e;--line:#d1d9e0;--paper:#fff;\
--card:#f6f8fa;--bad:#b42318;--warn:#9a6700;--good:#1a7f37;--wire:#0969da}\
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--quiet:#9198a1;--line:#3d444d;\
--paper:#0d1117;--card:#151b23;--bad:#ff8a80;--warn:#d29922;--good:#56d364;--wire:#79c0ff}}\
*{box-sizing:border-box}body{margin:0 auto;padding:1.5rem;max-width:62rem;background:var(--paper);\
color:var(--ink);font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}\
h1{font-size:1.1rem;color:var(--quiet);margin:0}h2{font-size:1.05rem;margin:1.8rem 0 .5rem}\
h3{font-size:.95rem;margin:1.2rem 0 .4rem}.verdict{font-size:1.3rem;font-weight:600;\
margin:.4rem 0 1rem;color:var(--bad)}.verdict.open{color:var(--warn)}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:0;padding:.8rem 1rem;\
background:var(--card);border:1px solid var(--line);border-radius:6px}dt{color:var(--quiet)}\
dd{margin:0}dd.call{font-weight:600}.low{color:var(--warn)}\
ul,ol{margin:.3rem 0;padding-left:1.4rem}li{margin:.2rem 0}\
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.87rem}\
td,th{text-align:left;vertical-align:top;padding:.25rem .6rem;border-bottom:1px solid var(--line)}\
th{color:var(--quiet);font-weight:500;white-space:nowrap}td.n{text-align:right}td.t{white-space:nowrap}\
tr.decides td{color:var(--bad);font-weight:600}\
svg{display:block;width:100%;min-width:44rem;height:auto;margin:.3rem 0}\
svg text{font:11px system-ui,sans-serif;fill:var(--quiet)}.lane{stroke:var(--line)}\
.chain{stroke:var(--ink);fill:var(--ink)}.expected{opacity:.35}.decides{stroke:var(--bad);fill:var(--bad)}\
.signal{fill:var(--warn);stroke:var(--warn)}.echo{fill:none}.log{fill:var(--good)}\
.wire{fill:var(--wire)}.odd{fill:var(--warn)}.plain{fill:var(--line)}\
.span{fill:var(--card);stroke:var(--line)}footer{margin-top:2rem;color:var(--quiet);font-size:.85rem}";

/// A text as it stands in an element or in a quoted attribute.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
    out
}

/// The whole page. `now` is when it was made.
pub(crate) fn text(report: &Report, now: Moment) -> String {
    let verdict = &report.diagnosis.verdict;
    let title = escaped(&heading(&report.diagnosis));
    let open = matches!(
        verdict.class,
        VerdictClass::CannotTell | VerdictClass::Unspecified
    );
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header>\n\
         <h1>{title}</h1>\n<p class=\"verdict{}\">{}</p>\n</header>\n<main>\n",
        if open { " open" } else { "" },
        escaped(&sentence(&report.diagnosis))
    );
    out.push_str(&fact_list(report));
    if let Some(meaning) = &verdict.meaning {
        out.push_str(&format!(
            "<section>\n<h2>What it means</h2>\n<p>{}</p>\n</section>\n",
            escaped(meaning)
        ));
    }
    out.push_str(&list("Check next", "ol", &verdict.next_steps));
    out.push_str(&list("Evidence", "ul", &verdict.evidence));
    out.push_str(&list("Against it", "ul", &verdict.against));
    out.push_str(&list("Not watched", "ul", &verdict.unwatched));
    out.push_str(&timeline(report));
    out.push_str(&totals(report));
    out.push_str(&format!(
        "</main>\n<footer>rdmesh {}, {}</footer>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION"),
        now.to_seconds_text()
    ));
    out
}

fn fact_list(report: &Report) -> String {
    let low = report.diagnosis.verdict.confidence == Confidence::Low;
    let mut out = "<dl>\n".to_owned();
    for (name, value) in facts(&report.diagnosis) {
        let class = match name {
            "who to call" => " class=\"call\"",
            "confidence" if low => " class=\"low\"",
            _ => "",
        };
        out.push_str(&format!(
            "<dt>{name}</dt><dd{class}>{}</dd>\n",
            escaped(&value)
        ));
    }
    out.push_str("</dl>\n");
    out
}

fn list(title: &str, element: &str, items: &[String]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let items = items
        .iter()
        .map(|item| format!("<li>{}</li>\n", escaped(item)));
    format!(
        "<section>\n<h2>{title}</h2>\n<{element}>\n{}</{element}>\n</section>\n",
        items.collect::<String>()
    )
}

fn timeline(report: &Report) -> String {
    let mut out = "<section>\n<h2>Timeline</h2>\n".to_owned();
    for host in told(&report.timeline) {
        out.push_str(&format!("<h3>{}</h3>\n", escaped(host_name(host))));
        out.push_str("<div class=\"scroll\">\n");
        out.push_str(&drawing::of(host, report));
        out.push_str("</div>\n<div class=\"scroll\">\n<table>\n");
        out.push_str("<tr><th>time</th><th>where</th><th>what</th></tr>\n");
        for event in events(host, &report.diagnosis) {
            let class = if event.decides {
                " class=\"decides\""
            } else {
                ""
            };
            out.push_str(&format!(
                "<tr{class}><td class=\"t\">{}</td><td class=\"t\">{}</td><td>{}</td></tr>\n",
                event.at.map(Moment::to_millis_text).unwrap_or_default(),
                event.lane,
                escaped(&event.text)
            ));
        }
        out.push_str("</table>\n</div>\n");
        match left_out(host) {
            0 => {}
            more => out.push_str(&format!(
                "<p>{more} later events of it are not listed.</p>\n"
            )),
        }
    }
    for line in missing(&report.timeline) {
        out.push_str(&format!("<p>{}</p>\n", escaped(&line)));
    }
    out.push_str("</section>\n");
    out
}

fn totals(report: &Report) -> String {
    let totals = &report.diagnosis.totals;
    if totals.is_empty() {
        return String::new();
    }
    let mut out = "<section>\n<h2>Failing returns</h2>\n<div class=\"scroll\">\n<table>\n\
                   <tr><th>host</th><th>layer</th><th>function</th><th>errno</th><th>count</th></tr>\n"
        .to_owned();
    for total in totals.iter().take(MAX_TOTALS) {
        out.push_str(&format!(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td></tr>\n",
            escaped(&total.host),
            total.layer.name(),
            escaped(&total.function),
            escaped(&errno_text(total.errno, total.errno_name.as_deref())),
            total.count
        ));
    }
    out.push_str("</table>\n</div>\n");
    if totals.len() > MAX_TOTALS {
        out.push_str(&format!(
            "<p>{} more are not listed.</p>\n",
            totals.len() - MAX_TOTALS
        ));
    }
    out.push_str("</section>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::samples;

    #[test]
    fn an_unmapped_address_as_a_page() {
        insta::assert_snapshot!(text(&samples::report(), samples::now()));
    }

    #[test]
    fn hostile_text_is_no_markup_and_loads_nothing() {
        let out = text(&samples::hostile_report(), samples::now());
        for never in [
            "<script", "<img", "<a ", "<link", "<iframe", "\u{1b}", "url(", "@import",
        ] {
            assert!(!out.contains(never), "{never}: {out}");
        }
        assert!(out.contains("&lt;script&gt;"), "{out}");
    }

    #[test]
    fn quotes_do_not_end_an_attribute() {
        assert_eq!(
            escaped("\"><b onload='x'>"),
            "&quot;&gt;&lt;b onload=&#39;x&#39;&gt;"
        );
    }
}
