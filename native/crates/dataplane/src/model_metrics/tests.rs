use super::*;
use MetricKind::{Counter, Gauge, Histogram};

fn labels(label: &str, value: &str) -> Labels {
    vec![(label.into(), value.into())]
}

fn text(metrics: &ModelMetrics) -> String {
    let mut out = String::new();
    metrics.write(&mut out);
    out
}

fn refusal<T>(result: Result<T, Error>) -> String {
    result.err().map(|error| error.to_string()).unwrap_or_default()
}

#[test]
fn what_has_the_same_name_and_labels_is_one_metric_for_all() {
    let metrics = Arc::new(ModelMetrics::default());
    let (one, other) = (metrics.holder("m"), metrics.holder("n"));
    let made = [&one, &one, &other].map(|holder| {
        let family = holder.family("asked", "Questions", Counter).unwrap();
        let metric = holder.metric(family, labels("what", "it\"s\\\n"), None).unwrap();
        assert!(holder.change(metric, Change::Increment(1.5)));
        metric
    });
    assert_eq!(made[0], made[1]);
    assert_eq!(one.value(made[0]), Some(4.5));
    let expected = "# HELP asked Questions\n# TYPE asked counter\nasked{what=\"it\\\"s\\\\\\n\"} 4.5\n";
    assert_eq!(text(&metrics), expected);
}

#[test]
fn what_nobody_holds_is_not_shown_and_begins_anew() {
    let metrics = Arc::new(ModelMetrics::default());
    let holder = metrics.holder("m");
    let family = holder.family("level", "How high", Gauge).unwrap();
    assert_eq!(text(&metrics), "");
    let metric = holder.metric(family, Labels::new(), None).unwrap();
    holder.metric(family, Labels::new(), None).unwrap();
    holder.change(metric, Change::Set(f64::INFINITY));
    holder.release(metric);
    assert!(text(&metrics).ends_with("level +Inf\n"));
    holder.release(metric);
    assert_eq!(text(&metrics), "");
    holder.release(metric);
    holder.release(family);
    assert!(metrics.made().families.is_empty() && metrics.made().models.is_empty());
    holder.family("level", "How low", Counter).unwrap();
}

#[test]
fn a_counter_goes_on_in_the_next_process_and_a_gauge_does_not() {
    let metrics = Arc::new(ModelMetrics::default());
    let holder = metrics.holder("m");
    let make = || {
        let counted = holder.family("counted", "", Counter).unwrap();
        let level = holder.family("level", "", Gauge).unwrap();
        [counted, level].map(|family| holder.metric(family, Labels::new(), None).unwrap())
    };
    for life in 1..4 {
        let [counted, level] = make();
        assert!(holder.change(counted, Change::Increment(1.0)));
        assert!(holder.change(level, Change::Increment(1.0)));
        assert_eq!((holder.value(counted), holder.value(level)), (Some(f64::from(life)), Some(1.0)));
        holder.process_ended();
        assert_eq!(holder.value(counted), None);
        assert!(text(&metrics).ends_with(&format!("counted {life}\n")));
    }
    drop(holder);
    assert!(metrics.made().families.is_empty() && metrics.made().models.is_empty());
}

#[test]
fn a_histogram_counts_what_is_not_above_its_bounds() {
    let metrics = Arc::new(ModelMetrics::default());
    let holder = metrics.holder("m");
    let family = holder.family("took", "a\\b\nc", Histogram).unwrap();
    let metric = holder.metric(family, labels("to", "x"), Some(&[0.5, 1.0])).unwrap();
    for value in [0.25, 0.5, 0.75, 8.0] {
        assert!(holder.change(metric, Change::Observe(value)));
    }
    assert_eq!(holder.value(metric), None);
    let expected = "# HELP took a\\\\b\\nc\n# TYPE took histogram\n\
        took_bucket{to=\"x\",le=\"0.5\"} 2\ntook_bucket{to=\"x\",le=\"1\"} 3\ntook_bucket{to=\"x\",le=\"+Inf\"} 4\n\
        took_sum{to=\"x\"} 9.5\ntook_count{to=\"x\"} 4\n";
    assert_eq!(text(&metrics), expected);
    assert!(
        refusal(holder.metric(family, labels("to", "x"), Some(&[0.5])))
            .contains("has the buckets [0.5, 1.0]")
    );
}

#[test]
fn a_kind_takes_its_own_changes_only() {
    let metrics = Arc::new(ModelMetrics::default());
    let holder = metrics.holder("m");
    let make = |name, kind, buckets: Option<&[f64]>| {
        holder.metric(holder.family(name, "", kind).unwrap(), Labels::new(), buckets).unwrap()
    };
    let (counter, gauge) = (make("c", Counter, None), make("g", Gauge, None));
    let histogram = make("h", Histogram, Some(&[]));
    let taken = |metric| {
        [Change::Increment(-1.0), Change::Increment(f64::NAN), Change::Set(1.0), Change::Observe(1.0)]
            .map(|change| holder.change(metric, change))
    };
    assert_eq!(taken(counter), [false, false, false, false]);
    assert_eq!(taken(gauge), [true, true, true, false]);
    assert_eq!(taken(histogram), [false, false, false, true]);
    assert!(!holder.change(999, Change::Set(0.0)));
}

#[test]
fn what_cannot_be_written_is_refused() {
    let metrics = Arc::new(ModelMetrics::default());
    let (holder, other) = (metrics.holder("m"), metrics.holder("n"));
    let family = holder.family("took", "d", Histogram).unwrap();
    for (name, kind, description, part) in [
        ("", Counter, "d", "is no name of a metric family"),
        ("1st", Counter, "d", "is no name of a metric family"),
        ("a-b", Counter, "d", "is no name of a metric family"),
        ("took", Counter, "d", "'took' is a histogram and cannot be a counter as well"),
        ("took_count", Counter, "d", "samples of the same name as 'took'"),
        ("nv_inference_count", Counter, "d", "has the name of a metric of the server"),
        ("kushi_queue_requests", Gauge, "d", "has the name of a metric of the server"),
    ] {
        let text = refusal(other.family(name, description, kind));
        assert!(text.contains(part), "{name}: {text}");
    }
    assert!(refusal(other.family(&"a".repeat(1025), "", Gauge)).contains("has 1025 bytes"));
    for label in ["", "1", "a-b", "a:b", "__a", "le"] {
        let text = refusal(holder.metric(family, labels(label, "x"), Some(&[1.0])));
        assert!(text.contains("is no label of a metric of 'took'"), "{label}: {text}");
    }
    for buckets in [&[1.0, 1.0][..], &[f64::NAN], &[f64::INFINITY]] {
        assert!(
            refusal(holder.metric(family, Labels::new(), Some(buckets)))
                .contains("must be numbers that rise")
        );
    }
    assert!(refusal(holder.metric(family, Labels::new(), None)).contains("Bucket boundaries not found"));
    assert!(refusal(other.metric(family, Labels::new(), None)).contains("no such metric family"));
}

#[test]
fn the_description_is_the_first_until_its_model_alone_has_the_family() {
    let metrics = Arc::new(ModelMetrics::default());
    let (holder, other) = (metrics.holder("m"), metrics.holder("n"));
    holder.family("took", "first", Gauge).unwrap();
    let family = other.family("took", "second", Gauge).unwrap();
    other.metric(family, Labels::new(), None).unwrap();
    assert!(text(&metrics).starts_with("# HELP took first\n"), "{}", text(&metrics));
    drop(holder);
    other.family("took", "third", Gauge).unwrap();
    assert!(text(&metrics).starts_with("# HELP took third\n"), "{}", text(&metrics));
}

#[test]
fn a_model_has_so_many_metrics_and_no_more() {
    let metrics = Arc::new(ModelMetrics::default());
    let holders = [metrics.holder("m"), metrics.holder("m")];
    for (index, holder) in holders.iter().cycle().take(MOST).enumerate() {
        let family = holder.family(&format!("f{index}"), "", Gauge).unwrap();
        holder.metric(family, Labels::new(), None).unwrap();
    }
    let [one, other] = &holders;
    assert_eq!(
        refusal(one.family("more", "", Gauge)),
        "model 'm' has 1000 metric families, which is the most"
    );
    // What it has may be made again, also by its other instances.
    let family = other.family("f0", "", Gauge).unwrap();
    other.metric(family, Labels::new(), None).unwrap();
    let text = refusal(other.metric(family, labels("a", "b"), None));
    assert_eq!(text, "model 'm' has 1000 metrics, which is the most");
    metrics.holder("n").family("more", "", Gauge).unwrap();
}
