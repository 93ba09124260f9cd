//! The points of schedules, gone through one path after the other.

/// The points of a schedule, and what is done there: 0 is the plain order.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) path: Vec<(usize, usize)>,
    at: usize,
}

impl Tree {
    pub(super) fn choose(&mut self, of: usize) -> usize {
        if self.at == self.path.len() {
            self.path.push((0, of));
        }
        let (taken, there) = self.path[self.at];
        assert_eq!(there, of, "the same beginning has led elsewhere");
        self.at += 1;
        taken
    }

    /// Makes the path that of the next schedule; false if there is none.
    pub(super) fn next(&mut self, turns_max: usize) -> bool {
        self.at = 0;
        while let Some((taken, of)) = self.path.pop() {
            let turns = self.path.iter().filter(|(taken, _)| *taken > 0).count();
            if taken + 1 < of && turns < turns_max {
                self.path.push((taken + 1, of));
                return true;
            }
        }
        false
    }
}
