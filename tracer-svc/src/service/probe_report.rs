//! The probe report of the contract, from the resolved plan.

use prost_types::Timestamp;
use rdmesh_proto::tracer::v1 as wire;

use crate::catalogue::{Group, Hook, Layer};
use crate::counters::{Counters, RunTime};
use crate::record::ProbeId;
use crate::resolve::{Found, HookReport, HookState, Mechanism, Missing, Probe, ProbeState, Report};
use crate::snapshot::{layer, module, object, verb};

/// Puts a report into the contract's words. `device_drivers` are the drivers
/// with a registered device.
#[must_use]
pub fn probe_report(
    report: &Report,
    counters: &Counters,
    device_drivers: &[String],
    kernel_release: &str,
    resolved_at: Timestamp,
) -> wire::ProbeReport {
    let thirteen = || {
        report
            .hooks
            .iter()
            .filter(|h| h.hook.group == Group::Thirteen)
    };
    let attached = thirteen()
        .filter(|h| !matches!(h.state, HookState::Missing(_)))
        .count();
    let mut probes = Vec::new();
    for hook in &report.hooks {
        rows(&mut probes, hook, report, counters);
    }
    wire::ProbeReport {
        resolved_at: Some(resolved_at),
        kernel_release: kernel_release.to_owned(),
        drivers: drivers(report, device_drivers),
        probes,
        logical_attached: u32::try_from(attached).unwrap_or(u32::MAX),
        logical_total: u32::try_from(thirteen().count()).unwrap_or(u32::MAX),
        obstacle: obstacle(report),
        resolution: report.resolution.clone(),
        ..wire::ProbeReport::default()
    }
}

/// What keeps every probe away; empty when one is attached.
#[must_use]
pub fn obstacle(report: &Report) -> String {
    let attached = |p: &Probe| matches!(p.state, ProbeState::Attached(_));
    if report.probes.iter().any(attached) {
        return String::new();
    }
    let mut reasons = report.hooks.iter().flat_map(|h| match &h.state {
        HookState::Missing(reasons) => reasons.as_slice(),
        _ => &[],
    });
    let taken_off = |m: &&Missing| matches!(m, Missing::BudgetPassed(_) | Missing::Detached(_));
    let waits = |m: &&Missing| matches!(m, Missing::ModuleNotLoaded(_) | Missing::NoDriver);
    match reasons
        .clone()
        .find(taken_off)
        .or_else(|| reasons.clone().find(|m| !waits(m)))
        .or_else(|| reasons.next())
    {
        Some(stopped @ Missing::BudgetPassed(_)) => stopped.to_string(),
        Some(reason) if !waits(&reason) => format!("no probe is attached: {reason}"),
        _ => "no RDMA module is loaded; probes attach by themselves when one appears (modprobe \
              ib_uverbs and the NIC's driver, such as mlx5_ib)"
            .to_owned(),
    }
}

fn drivers(report: &Report, device_drivers: &[String]) -> Vec<String> {
    let hooked = report
        .probes
        .iter()
        .filter(|p| p.hook.layer == Layer::Driver)
        .map(|p| p.module.clone());
    let mut drivers: Vec<String> = device_drivers.iter().cloned().chain(hooked).collect();
    drivers.sort();
    drivers.dedup();
    drivers
}

fn rows(rows: &mut Vec<wire::Probe>, hook: &HookReport, report: &Report, counters: &Counters) {
    let (main_function, main_module) = main_place(&hook.hook);
    let replaced = matches!(hook.state, HookState::Replaced { .. });
    // What is said of a replaced function stands in the row that names its
    // substitute: two rows would read as two hooks.
    let of_replaced = |missing: &Missing| {
        let (function, module) = place_of(missing);
        let same_module = module.is_empty() || module == main_module;
        let same_function = function.is_empty() || function == main_function;
        replaced
            && same_module
            && same_function
            && !matches!(missing, Missing::Detached(_) | Missing::BudgetPassed(_))
    };
    let mut told = Vec::new();
    for probe in hook.probes.iter().filter_map(|id| report.probe(*id)) {
        if let ProbeState::Missing(missing) = &probe.state {
            if of_replaced(missing) {
                continue;
            }
            told.push(missing.clone());
        }
        rows.push(attached_row(probe, counters));
    }
    let absent = |state: wire::ProbeState, place: (String, String), because: &[&Missing]| {
        let (function, module) = place;
        let reasons: Vec<String> = because.iter().map(ToString::to_string).collect();
        wire::Probe {
            function,
            module,
            state: state.into(),
            reason: reasons.join("; "),
            missing_because: missing_because(because),
            ..row_of(&hook.hook)
        }
    };
    let main_place = || (main_function.clone(), main_module.clone());
    match &hook.state {
        HookState::Attached => {}
        HookState::Replaced { by } => {
            let why: Vec<&Missing> = hook.gaps.iter().filter(|gap| of_replaced(gap)).collect();
            let mut row = absent(wire::ProbeState::Replaced, main_place(), &why);
            let served = format!("served by {}", by.join(", "));
            row.reason = match row.reason.as_str() {
                "" => served,
                why => format!("{served}; {why}"),
            };
            rows.push(row);
        }
        HookState::Missing(reasons) => {
            let untold: Vec<&Missing> = reasons.iter().filter(|m| !told.contains(m)).collect();
            if told.is_empty() || !untold.is_empty() {
                rows.push(absent(wire::ProbeState::Missing, main_place(), &untold));
            }
        }
    }
    let own_row = |gap: &&Missing| !told.contains(gap) && !of_replaced(gap);
    for gap in hook.gaps.iter().filter(own_row) {
        rows.push(absent(wire::ProbeState::Missing, place_of(gap), &[gap]));
    }
}

fn attached_row(probe: &Probe, counters: &Counters) -> wire::Probe {
    let (state, attached_by, reason) = match &probe.state {
        ProbeState::Planned => (wire::ProbeState::Missing, None, "not tried yet".to_owned()),
        ProbeState::Attached(mechanism) => (
            wire::ProbeState::Attached,
            Some(attach_kind(*mechanism)),
            probe.not_better().unwrap_or_default(),
        ),
        ProbeState::Missing(missing @ (Missing::Detached(_) | Missing::BudgetPassed(_))) => {
            (wire::ProbeState::Detached, None, missing.to_string())
        }
        ProbeState::Missing(missing) => (wire::ProbeState::Missing, None, missing.to_string()),
    };
    wire::Probe {
        function: probe.function.clone(),
        module: module(&probe.module).to_owned(),
        state: state.into(),
        attached_by: attached_by.unwrap_or(wire::AttachKind::Unspecified).into(),
        reason,
        failures: failures(probe, counters),
        drops: counters
            .losses
            .get(probe.id.index())
            .map_or(0, |l| l.records_dropped),
        found_by: found_by(probe),
        unseen: counters
            .losses
            .get(probe.id.index())
            .map_or(0, |l| l.unseen),
        runs_timed: run_time(probe, counters).runs,
        run_time_ns: run_time(probe, counters).ns,
        arguments: probe
            .arguments
            .iter()
            .filter(|a| a.absent.is_none())
            .map(|a| a.name.to_owned())
            .collect(),
        arguments_absent: probe
            .arguments
            .iter()
            .filter_map(|a| Some(format!("{}: {}", a.name, a.absent.as_ref()?)))
            .collect(),
        missing_because: match &probe.state {
            ProbeState::Missing(missing) => missing_because(&[missing]),
            ProbeState::Planned | ProbeState::Attached(_) => Vec::new(),
        },
        ..row_of(&probe.hook)
    }
}

fn run_time(probe: &Probe, counters: &Counters) -> RunTime {
    let of_probe = counters.run_times.get(probe.id.index());
    of_probe.copied().unwrap_or_default()
}

/// Events are not failures and have no errno.
fn failures(probe: &Probe, counters: &Counters) -> u64 {
    if probe.hook.is_event() {
        0
    } else {
        counters.total(ProbeId(probe.id.0))
    }
}

fn row_of(hook: &Hook) -> wire::Probe {
    wire::Probe {
        hook: hook.name.clone(),
        layer: layer(hook.layer).into(),
        verb: verb(hook).into(),
        object: object(hook).into(),
        logical: hook.group == Group::Thirteen,
        ..wire::Probe::default()
    }
}

fn attach_kind(mechanism: Mechanism) -> wire::AttachKind {
    match mechanism {
        Mechanism::Fexit => wire::AttachKind::Fexit,
        Mechanism::Kretprobe => wire::AttachKind::Kretprobe,
        Mechanism::KretprobeMulti => wire::AttachKind::KretprobeMulti,
    }
}

fn found_by(probe: &Probe) -> String {
    match probe.found {
        Found::Name => "by name".to_owned(),
        Found::OpsTable => format!("ib_device_ops of {}", probe.module),
        Found::Prototype => "by prototype and name".to_owned(),
        Found::Symbol => "by name of the symbol".to_owned(),
    }
}

/// What the hook means first: its main function, or the operation.
fn main_place(hook: &Hook) -> (String, String) {
    match (hook.places.first(), &hook.operation) {
        (Some(place), _) => (place.function.clone(), place.module.clone()),
        (None, Some(operation)) => (format!("(driver's {operation})"), String::new()),
        (None, None) => (String::new(), String::new()),
    }
}

fn place_of(missing: &Missing) -> (String, String) {
    match missing {
        Missing::NoFunction { module, function } | Missing::Ambiguous { module, function } => {
            (function.clone(), module.clone())
        }
        Missing::Suffixed { function, .. } | Missing::Refused { function, .. } => {
            (function.clone(), String::new())
        }
        Missing::NotTraceable(function)
        | Missing::NotDescribed(function)
        | Missing::NoReturnValue(function) => (function.clone(), String::new()),
        Missing::NoOperation { module, operation } => {
            (format!("(driver's {operation})"), module.clone())
        }
        Missing::ModuleNotLoaded(module)
        | Missing::NoBtf(module)
        | Missing::BrokenBtf { module, .. }
        | Missing::Detached(module) => (String::new(), module.clone()),
        Missing::NoDriver | Missing::BudgetPassed(_) => (String::new(), String::new()),
    }
}

/// The reasons as the contract numbers them, each once.
fn missing_because(reasons: &[&Missing]) -> Vec<i32> {
    let mut numbers = Vec::new();
    for missing in reasons {
        let number = i32::from(reason_of(missing));
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    numbers
}

fn reason_of(missing: &Missing) -> wire::MissingReason {
    match missing {
        Missing::ModuleNotLoaded(_) => wire::MissingReason::ModuleNotLoaded,
        Missing::NoDriver => wire::MissingReason::NoDriver,
        Missing::NoFunction { .. } => wire::MissingReason::NoSuchFunction,
        Missing::Suffixed { .. } => wire::MissingReason::ChangedByCompiler,
        Missing::NotDescribed(_) => wire::MissingReason::NotDescribed,
        Missing::NoBtf(_) | Missing::BrokenBtf { .. } => wire::MissingReason::NoBtf,
        Missing::Ambiguous { .. } => wire::MissingReason::Ambiguous,
        Missing::NotTraceable(_) => wire::MissingReason::NotTraceable,
        Missing::NoOperation { .. } => wire::MissingReason::DriverHasNoOperation,
        Missing::NoReturnValue(_) => wire::MissingReason::NoReturnValue,
        Missing::Refused { .. } => wire::MissingReason::RefusedByKernel,
        Missing::Detached(_) => wire::MissingReason::Detached,
        Missing::BudgetPassed(_) => wire::MissingReason::BudgetPassed,
    }
}
