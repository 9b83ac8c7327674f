use alloc::collections::BTreeSet;

use super::*;

const A: Option<SubflowId> = Some(SubflowId(0));
const B: Option<SubflowId> = Some(SubflowId(1));

fn range(start: u64, end: u64) -> Range<Offset> {
    Offset(start)..Offset(end)
}

fn all() -> impl Iterator<Item = Order> {
    ReceiveAlgorithm::ALL.iter().map(|&which| Order::new(which))
}

#[test]
fn holes_are_found_and_filled() {
    for mut order in all() {
        order.insert(A, range(10, 20));
        order.insert(B, range(40, 50));
        assert_eq!(order.gaps(A, &range(5, 45)), [range(5, 10), range(20, 40)]);
        assert!(order.overlaps(B, &range(19, 21)) && !order.overlaps(B, &range(20, 40)));
        order.insert(A, range(15, 42));
        assert_eq!((order.bytes(), order.end()), (40, Some(Offset(50))));
        assert_eq!(order.take_ready(A, Offset(9)), Offset(9));
        assert_eq!(order.take_ready(A, Offset(10)), Offset(50));
        assert!(order.is_empty() && order.bytes() == 0);
    }
}

/// Two subflows that deliver runs of `run` segments each, 30 runs behind a hole.
fn two_subflows(order: &mut Order, run: u64) {
    for segment in 0..run {
        for batch in 0..30 {
            let at = 1 + (batch * run + segment) * 100;
            let by = if batch % 2 == 0 { A } else { B };
            order.insert(by, range(at, at + 100));
        }
    }
}

#[test]
fn shortcuts_save_search_steps_where_subflows_deliver_runs() {
    let cost = |algorithm| {
        let mut order = Order::new(algorithm);
        for batch in 0..30 {
            for segment in 0..50 {
                // Each subflow's batch arrives next to that of the other.
                for (by, odd) in [(A, 0), (B, 1)] {
                    let at = 1 + ((2 * batch + odd) * 50 + segment) * 100;
                    order.insert(by, range(at, at + 100));
                }
            }
        }
        assert_eq!(order.bytes(), 30 * 50 * 2 * 100);
        order.searches()
    };
    let [list, tree, shortcuts, batches] = [
        ReceiveAlgorithm::List,
        ReceiveAlgorithm::Tree,
        ReceiveAlgorithm::Shortcuts,
        ReceiveAlgorithm::AllShortcuts,
    ]
    .map(cost);
    assert_eq!(
        [list.searches, shortcuts.searches, batches.searches],
        [3_000; 3]
    );
    assert_eq!((list.hits, tree.hits), (0, 0));
    assert!(
        shortcuts.hits >= 2_900 && batches.hits >= 2_900,
        "{shortcuts:?} {batches:?}"
    );
    assert!(list.steps > 10 * shortcuts.steps, "{list:?} {shortcuts:?}");
    assert!(tree.steps > 2 * batches.steps, "{tree:?} {batches:?}");
}

#[test]
fn adjacent_segments_merge_into_few_batches() {
    let mut orders = all().map(|mut order| {
        two_subflows(&mut order, 20);
        order.count()
    });
    assert!(orders.by_ref().take(3).all(|count| count == 600));
    assert_eq!(orders.next(), Some(1));
}

/// A peer sends every second byte, and then repeats what lies farthest from the end of a list.
#[test]
fn thousands_of_holes_make_no_segment_expensive() {
    for mut order in all() {
        let name = order.algorithm();
        let mut worst = 0;
        let mut steps = |order: &mut Order, by, at| {
            let before = order.searches().steps;
            if !order.overlaps(by, &range(at, at + 1)) {
                order.insert(by, range(at, at + 1));
            }
            worst = worst.max(order.searches().steps - before);
        };
        for hole in 1..=20_000 {
            steps(&mut order, A, 2 * hole);
            steps(&mut order, B, 2 + 2 * (hole / 2));
        }
        assert_eq!(order.bytes(), 20_000, "{name}");
        assert!(worst <= LONGEST_LIST as u64 + 1, "{name}: {worst} steps");
    }
}

#[test]
fn a_list_that_was_too_long_is_a_list_again_once_it_is_empty() {
    for algorithm in [ReceiveAlgorithm::List, ReceiveAlgorithm::Shortcuts] {
        let mut order = Order::new(algorithm);
        for n in 1..=LONGEST_LIST as u64 + 1 {
            order.insert(A, range(10 * n, 10 * n + 10));
        }
        assert_eq!(order.count(), 1, "they follow each other: one batch");
        let end = Offset(10 * LONGEST_LIST as u64 + 20);
        assert_eq!((order.algorithm(), order.end()), (algorithm, Some(end)));
        assert_eq!(order.take_ready(A, Offset(10)), end);
        order.insert(A, range(100_000, 100_010));
        order.insert(B, range(100_010, 100_020));
        assert_eq!((order.count(), order.bytes()), (2, 20));
    }
}

#[test]
fn another_algorithm_keeps_what_has_arrived() {
    for &from in ReceiveAlgorithm::ALL {
        for &to in ReceiveAlgorithm::ALL {
            let mut order = Order::new(from);
            two_subflows(&mut order, 3);
            order.insert(A, range(90_000, 90_001));
            let before = order.searches();
            order.set_algorithm(to);
            assert_eq!((order.algorithm(), order.searches()), (to, before));
            assert_eq!(order.gaps(B, &range(0, 90_010)).len(), 3);
            assert_eq!(order.take_ready(A, Offset(1)), Offset(9_001));
        }
    }
}

/// A small deterministic random generator: each run has the same operations.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[test]
fn all_four_algorithms_agree_with_a_set_of_bytes() {
    for seed in 1..=200 {
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let mut orders: Vec<Order> = all().collect();
        let (mut bytes, mut next) = (BTreeSet::new(), 0_u64);
        for _ in 0..200 {
            let by = Some(SubflowId(dice.below(8) as u8));
            let start = next + dice.below(300);
            let asked = start..start + 1 + dice.below(40);
            let wanted = range(asked.start, asked.end);
            let missing: Vec<u64> = asked.clone().filter(|at| !bytes.contains(at)).collect();
            let insert = dice.below(3) > 0 && start > next;
            bytes.extend(asked.clone().filter(|_| insert));
            let mut ready = next;
            if dice.below(4) == 0 {
                next += dice.below(20);
                ready = next;
            }
            let takes = dice.below(4) == 0;
            while takes && bytes.contains(&ready) {
                ready += 1;
            }
            for order in &mut orders {
                let name = order.algorithm();
                let gaps = order.gaps(by, &wanted);
                let gaps: Vec<u64> = gaps.iter().flat_map(|g| g.start.0..g.end.0).collect();
                assert_eq!(gaps, missing, "{name} {seed}");
                let some = missing.len() < (asked.end - asked.start) as usize;
                assert_eq!(order.overlaps(by, &wanted), some, "{name} {seed}");
                if insert {
                    order.insert(by, wanted.clone());
                }
                if takes {
                    assert_eq!(
                        order.take_ready(by, Offset(next)),
                        Offset(ready),
                        "{name} {seed}"
                    );
                }
            }
            if takes {
                bytes = bytes.split_off(&ready);
                next = ready;
            }
            let held = bytes.len() as u64;
            let end = bytes.last().map(|last| Offset(last + 1));
            for order in &orders {
                let name = order.algorithm();
                assert_eq!((order.bytes(), order.end()), (held, end), "{name} {seed}");
            }
        }
    }
}
