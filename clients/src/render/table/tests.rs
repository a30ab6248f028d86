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

/// Failures as `rdmesh failures` shows them, with a long function.
fn failing() -> Table {
    let mut table = Table::new(&[
        Column::fixed("FIRST"),
        Column::attempt("ATTEMPT"),
        Column::number("RANK").dear(1),
        Column::number("COUNT"),
        Column::function("FUNCTION"),
        Column::prose("MARKS", 16).dear(0).folding(),
        Column::prose("CHAIN", 24),
    ]);
    for (function, marks) in [
        ("rdma_addr_find_l2_eth_by_grh", "swallowed, incomplete"),
        ("ib_umem_get", ""),
    ] {
        table.row([
            "2026-01-31 14:05:00.123Z".into(),
            "train-llama-70b-x7k2q/12.3".into(),
            "3".into(),
            "100000".into(),
            function.into(),
            Cell::inked(Ink::Warning, marks),
            "a > b".into(),
        ]);
    }
    table
}

#[test]
fn a_column_that_folds_stands_below_its_row() {
    assert!(!failing().to_text(&at(200)).contains("MARKS:"));
    let expected = "FIRST                     ATTEMPT       RANK   COUNT  FUNCTION\n\
                    \u{20}   CHAIN\n\
                    2026-01-31 14:05:00.123Z  tra…k2q/12.3     3  100000  rdma_addr_find_l2_eth_by_grh\n\
                    \u{20}   a > b\n\
                    \u{20}   MARKS: swallowed, incomplete\n\
                    2026-01-31 14:05:00.123Z  tra…k2q/12.3     3  100000  ib_umem_get\n\
                    \u{20}   a > b\n";
    let shown = failing().to_text(&at(82));
    assert_eq!(shown, expected, "{shown}");
}

#[test]
fn without_room_for_columns_each_cell_follows_its_title() {
    let expected = "FIRST 2026-01-31 14:05:00.123Z\n\
                    \u{20} ATTEMPT train-llama-70b-x7k2q/12.3\n\
                    \u{20} RANK 3  COUNT 100000\n\
                    \u{20} FUNCTION rdma_addr_find_l2_eth_by_grh\n\
                    \u{20} MARKS swallowed, incomplete\n\
                    \u{20}   a > b\n";
    let shown = failing().to_text(&at(40));
    assert!(shown.starts_with(expected), "{shown}");
    for width in 30..200 {
        let shown = failing().to_text(&at(width));
        for line in shown.lines() {
            assert!(line.width() <= width, "{width}: {line}\n{shown}");
        }
        for part in [
            "100000",
            "rdma_addr_find_l2_eth_by_grh",
            "/12.3",
            "swallowed",
        ] {
            assert!(shown.contains(part), "{width}: no {part}\n{shown}");
        }
    }
}

#[test]
fn a_cheap_column_goes_also_when_it_is_the_last_one() {
    let mut table = Table::new(&[
        Column::fixed("HEALTH"),
        Column::number("FAILING").dear(0),
        Column::number("SNAPSHOTS").cheap(0),
        Column::prose("WHY", 24),
    ]);
    table.row(["healthy".into(), "3".into(), "0".into(), "".into()]);
    let shown = table.to_text(&at(20));
    assert!(
        shown.starts_with("HEALTH   FAILING\nhealthy        3\n"),
        "{shown}"
    );
    assert!(
        shown.replace('\n', " ").contains("narrow: SNAPSHOTS;"),
        "{shown}"
    );
}

/// As long as a name of the kernel may be (`KSYM_NAME_LEN` is more; what the contract
/// takes is 64).
fn longest_function() -> String {
    format!("{}_of_the_other_end", "x".repeat(47))
}

#[test]
fn a_function_of_64_characters_fits_where_it_has_its_own_lines() {
    let function = longest_function();
    assert_eq!(function.len(), 64);
    let mut failures = failing();
    failures.row([
        "2026-01-31 14:05:00.123Z".into(),
        "4711/0".into(),
        "3".into(),
        "1".into(),
        function.as_str().into(),
        Cell::inked(Ink::Warning, format!("swallowed by {function}")),
        format!("{function} > {function} > b").into(),
    ]);
    let mut facts = Table::new(&["", ""]).indented("  ");
    facts.row([
        "function".into(),
        format!("{function} (module mlx5_ib)").into(),
    ]);
    for width in 30..90 {
        for table in [&failures, &facts] {
            let shown = table.to_text(&at(width));
            for line in shown.lines() {
                assert!(line.width() <= width, "{width}: {line}\n{shown}");
            }
            assert!(shown.contains("end"), "both ends stay: {shown}");
        }
    }
    assert!(failures.to_text(&Style::PLAIN).contains(&function));
    assert!(failures.to_text(&at(80)).contains(&format!("{function} >")));
}
