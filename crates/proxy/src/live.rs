//! The stack of this process, seen and steered from other processes.

use std::os::fd::BorrowedFd;

use manypath_control::convert;
use manypath_control::report::ConnReport;
use manypath_control::server::{Backend, News};
use manypath_control::wire::DecisionReport;
use manypath_io::Context;
use manypath_io::sys::unread::unread;
use manypath_stack::ids::ConnId;
use manypath_stack::pm::controllers::View;
use manypath_stack::{Command, Done, PathManager, StackError};

/// A running stack, for a [control socket](manypath_control::server::Server).
#[derive(Clone, Debug)]
pub struct Live(pub Context);

impl Backend for Live {
    fn connections(&self) -> Vec<ConnReport> {
        let mut all = self.0.look(|stack, now, name| {
            let known = stack.conns().into_iter();
            known
                .filter_map(|id| stack.info(id).ok())
                .map(|info| convert::connection(&info, now, name))
                .collect::<Vec<_>>()
        });
        all.sort_by_key(|conn| std::cmp::Reverse(conn.age_us));
        all
    }

    fn connection(&self, id: ConnId) -> Option<ConnReport> {
        self.0.look(|stack, now, name| {
            let info = stack.info(id).ok()?;
            Some(convert::connection(&info, now, name))
        })
    }

    fn view(&self, id: ConnId) -> Option<View> {
        self.0.conn_info(id).map(|info| View::from(&info))
    }

    fn decisions(&self, id: ConnId) -> Option<Vec<DecisionReport>> {
        self.0.look(|stack, now, _| {
            let decisions = stack.decisions(id).ok()?;
            let told = decisions.iter().map(|d| convert::decision(d, now));
            Some(told.collect())
        })
    }

    fn policy(&self, id: ConnId) -> Option<PathManager> {
        self.0.conn_info(id).map(|info| info.path_manager)
    }

    fn command(&self, id: ConnId, command: Command) -> Result<Done, StackError> {
        self.0
            .with_stack(|stack, now| stack.command(now, id, command))
    }

    fn news(&self) -> News {
        let (events, lost) = self.0.path_events();
        News { events, lost }
    }

    fn unread(&self, socket: BorrowedFd<'_>) -> Option<usize> {
        unread(socket).ok()
    }
}
