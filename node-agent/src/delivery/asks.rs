//! Requests that users made through the collector, on their way from the sender to control, and the answers on their way
//! back. Neither side waits for the other, and what finds no room is dropped: the collector takes silence for no answer.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use polymeter_proto::wire::control::ControlLine;
use tokio::sync::mpsc;

use crate::lanes::Channels;

/// Requests that may wait for control, which takes them at once unless it is opening files.
const WAITING: usize = 16;

/// Answers that may wait for the socket: those of all requests that wait or are being answered, and of as many that are
/// refused because there are too many.
const ANSWERS: usize = 64;

/// One request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    /// The collector's number for it.
    pub(crate) id: u64,
    /// Who asks, as the collector has checked.
    pub(crate) uid: u32,
    /// When it takes effect, in microseconds since the epoch.
    pub(crate) at_us: i64,
    /// The request, as the control socket would get it.
    pub(crate) line: ControlLine,
}

type Queue = Arc<ArrayQueue<(u64, ControlLine)>>;

/// The sender's end.
#[derive(Debug)]
pub(crate) struct Asks {
    asks: mpsc::Sender<Ask>,
    answers: Queue,
    /// An answer that the socket had no room for.
    held: Option<(u64, ControlLine)>,
}

/// Control's end.
#[derive(Debug)]
pub(crate) struct Asked {
    asks: mpsc::Receiver<Ask>,
    answers: Answers,
}

/// Where answers go.
#[derive(Debug, Clone)]
pub(crate) struct Answers {
    queue: Queue,
    channels: Arc<Channels>,
}

/// Both ends. The channels's event calls the sender, which waits for it anyway.
pub(crate) fn asks(channels: Arc<Channels>) -> (Asks, Asked) {
    let (sender, receiver) = mpsc::channel(WAITING);
    let queue = Arc::new(ArrayQueue::new(ANSWERS));
    let answers = Answers { queue: Arc::clone(&queue), channels };
    (Asks { asks: sender, answers: queue, held: None }, Asked { asks: receiver, answers })
}

impl Asks {
    /// Hands a request to control; says whether there was room.
    pub(crate) fn hand_on(&self, ask: Ask) -> bool {
        self.asks.try_send(ask).is_ok()
    }

    /// The next answer to be sent.
    pub(crate) fn next_answer(&mut self) -> Option<(u64, ControlLine)> {
        self.held.take().or_else(|| self.answers.pop())
    }

    /// Keeps an answer for which the socket has no room, to be the next again.
    pub(crate) fn hold(&mut self, answer: (u64, ControlLine)) {
        self.held = Some(answer);
    }
}

impl Asked {
    /// The next request; none once the sender has gone.
    pub(crate) async fn next(&mut self) -> Option<Ask> {
        self.asks.recv().await
    }

    /// Where its answer goes.
    pub(crate) fn answers(&self) -> Answers {
        self.answers.clone()
    }
}

impl Answers {
    /// Hands the answer to a request to the sender.
    pub(crate) fn give(&self, id: u64, line: ControlLine) {
        // Without room it is dropped, and the user reads that there was no answer.
        if self.queue.push((id, line)).is_ok() {
            self.channels.full_event().notify();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> ControlLine {
        text.try_into().unwrap()
    }

    #[test]
    fn a_flood_finds_no_room_and_stops_nobody() {
        let (mut asks, asked) = asks(Arc::new(Channels::new().unwrap()));
        let ask = |id| Ask { id, uid: 0, at_us: 0, line: line("{}") };
        let taken = (0..1000).filter(|id| asks.hand_on(ask(*id))).count();
        assert_eq!(taken, WAITING);
        for id in 0..1000 {
            asked.answers().give(id, line("{}"));
        }
        let answer = asks.next_answer().unwrap();
        asks.hold(answer);
        let sent: Vec<_> = std::iter::from_fn(|| asks.next_answer()).map(|(id, _)| id).collect();
        assert_eq!(sent, (0..ANSWERS as u64).collect::<Vec<_>>());
        drop(asked);
        assert!(!asks.hand_on(ask(0)));
    }
}
