use super::*;

fn sample() -> Table {
    let mut table = Table::new(&["HOST", "EMPTY", ">N", "WHY"]);
    table.row([
        "gpu-01".into(),
        "".into(),
        "7".into(),
        "silent for 12 minutes now".into(),
    ]);
    table.row(["日本".into(), "".into(), "1234".into(), "".into()]);
    table
}

fn at(width: usize) -> Style {
    Style {
        color: false,
        width: Some(width),
    }
}

/// What rows look like that have everything.
fn full() -> Table {
    let mut table = Table::new(&[
        Column::fixed("HEALTH"),
        Column::name("HOST"),
        Column::name("KERNEL").cheap(1),
        Column::number("FAILING\nRETURNS").dear(1),
        Column::number("CLOCK").dear(0),
        Column::prose("WHY", 24),
    ]);
    let cells = |host: &str, why: &str| -> [Cell; 6] {
        [
            "degraded".into(),
            host.into(),
            "6.1.0-31-amd64".into(),
            "300000".into(),
            "-303.6 ms".into(),
            why.into(),
        ]
    };
    let reason = "2 of 13 logical hooks are not watched: driver.reg_user_mr_dmabuf, memory.dmabuf";
    table.row(cells("gpu-01", reason));
    table.row(cells(&"x".repeat(253), ""));
    table
}

#[test]
fn columns_align_and_empty_ones_go() {
    let expected = "HOST       N  WHY\n\
                    gpu-01     7  silent for 12 minutes now\n\
                    日本    1234\n";
    assert_eq!(sample().to_text(&Style::PLAIN), expected);
}

#[test]
fn the_last_column_wraps_on_a_terminal() {
    let expected = "HOST       N  WHY\n\
                    gpu-01     7  silent for 12 minutes\n\
                    \u{20}             now\n\
                    日本    1234\n";
    assert_eq!(sample().to_text(&at(38)), expected);
}

#[test]
fn the_last_column_goes_below_when_there_is_no_room() {
    let expected = "HOST       N\n\
                    \u{20}   WHY\n\
                    gpu-01     7\n\
                    \u{20}   silent for 12 minutes now\n\
                    日本    1234\n";
    assert_eq!(sample().to_text(&at(30)), expected);
}

#[test]
fn a_table_without_rows_is_nothing() {
    assert_eq!(Table::new(&["A"]).to_text(&Style::PLAIN), "");
}

#[test]
fn no_line_is_left_for_the_terminal_to_break() {
    for width in 40..200 {
        let shown = full().to_text(&at(width));
        for line in shown.lines() {
            assert!(line.width() <= width, "{width}: {line}\n{shown}");
        }
        assert!(shown.contains("driver.reg_user_mr_dmabuf"), "{shown}");
    }
}

#[test]
fn what_matters_least_goes_first_and_is_named() {
    let shown = |width| full().to_text(&at(width));
    assert!(shown(200).contains("6.1.0") && !shown(200).contains("Left out"));
    let narrow = shown(80);
    assert!(narrow.contains("Left out, for the terminal is narrow: KERNEL"));
    assert!(narrow.contains("-303.6 ms"), "{narrow}");
}

#[test]
fn one_long_name_widens_no_other_row() {
    let longest = full()
        .to_text(&Style::PLAIN)
        .lines()
        .map(UnicodeWidthStr::width)
        .max();
    assert!(longest < Some(220), "{longest:?}");
    assert!(full().to_text(&Style::PLAIN).contains("xxx…"));
}
