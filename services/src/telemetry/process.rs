//! What the process itself costs, by OpenTelemetry's names.

use opentelemetry::KeyValue;
use opentelemetry::metrics::Meter;

/// What `/proc/self` says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cost {
    pub(crate) user_seconds: f64,
    pub(crate) system_seconds: f64,
    pub(crate) resident_bytes: u64,
    pub(crate) threads: u64,
}

/// Reads the cost so far; `None` where `/proc` cannot be read.
pub(crate) fn cost() -> Option<Cost> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    parse(
        &stat,
        rustix::param::clock_ticks_per_second(),
        rustix::param::page_size() as u64,
    )
}

/// Fields 14, 15, 20 and 24 of proc_pid_stat(5). The command, in parentheses, may hold
/// spaces and parentheses: count from the last one.
fn parse(stat: &str, ticks_per_second: u64, page_bytes: u64) -> Option<Cost> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // `rest` starts at field 3.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    #[expect(
        clippy::cast_precision_loss,
        reason = "exact up to 2^53 ticks, three million years"
    )]
    let seconds = |ticks: u64| ticks as f64 / ticks_per_second as f64;
    Some(Cost {
        user_seconds: seconds(field(14)?),
        system_seconds: seconds(field(15)?),
        resident_bytes: field(24)? * page_bytes,
        threads: field(20)?,
    })
}

/// Observes the cost on each export.
pub(crate) fn register(meter: &Meter) {
    meter
        .f64_observable_counter("process.cpu.time")
        .with_unit("s")
        .with_description("CPU seconds of this process")
        .with_callback(|observer| {
            if let Some(cost) = cost() {
                observer.observe(cost.user_seconds, &[KeyValue::new("cpu.mode", "user")]);
                observer.observe(cost.system_seconds, &[KeyValue::new("cpu.mode", "system")]);
            }
        })
        .build();
    meter
        .u64_observable_gauge("process.memory.usage")
        .with_unit("By")
        .with_description("Resident memory of this process")
        .with_callback(|observer| {
            if let Some(cost) = cost() {
                observer.observe(cost.resident_bytes, &[]);
            }
        })
        .build();
    meter
        .u64_observable_gauge("process.thread.count")
        .with_unit("{thread}")
        .with_description("Threads of this process")
        .with_callback(|observer| {
            if let Some(cost) = cost() {
                observer.observe(cost.threads, &[]);
            }
        })
        .build();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_parentheses_does_not_shift_the_fields() {
        let stat = "42 (a) (b c) S 1 1 1 0 -1 4194560 1 2 3 4 250 50 7 8 20 0 3 0 99 1000 25 18446";
        let cost = parse(stat, 100, 4096).unwrap();
        assert_eq!(cost.user_seconds, 2.5);
        assert_eq!(cost.system_seconds, 0.5);
        assert_eq!(cost.threads, 3);
        assert_eq!(cost.resident_bytes, 25 * 4096);
    }

    #[test]
    fn nonsense_is_no_cost() {
        assert_eq!(parse("", 100, 4096), None);
        assert_eq!(parse("1 (x) S 1 2", 100, 4096), None);
    }

    #[test]
    fn this_process_has_memory_and_threads() {
        let cost = cost().unwrap();
        assert!(cost.resident_bytes > 100_000 && cost.threads >= 1);
    }
}
