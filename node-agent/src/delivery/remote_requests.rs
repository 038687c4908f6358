//! Queues of control requests that arrive through the collector, from the sender to control, and of the
//! answers on their way back. Neither side waits for the other: a request or an answer without room is
//! dropped, and the collector reports that the node gave no answer.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use polymeter_proto::wire::control::ControlLine;
use tokio::sync::mpsc;

use crate::lanes::Channels;

/// Control takes requests at once unless it is opening files.
const REQUESTS: usize = 16;

/// Holds the answers of all requests that wait or are in progress, and as many refusals.
const ANSWERS: usize = 64;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RemoteRequest {
    /// Collector's number of the request, which the answer repeats.
    pub(crate) id: u64,
    /// Numeric id of the requester, as the collector has authenticated it.
    pub(crate) uid: u32,
    /// Time at which the request takes effect, in microseconds since the epoch.
    pub(crate) at_us: i64,
    pub(crate) line: ControlLine,
}

type AnswerQueue = Arc<ArrayQueue<(u64, ControlLine)>>;

#[derive(Debug)]
pub(crate) struct RemoteRequestSender {
    requests: mpsc::Sender<RemoteRequest>,
    answers: AnswerQueue,
    /// Answer for which the socket had no room.
    held: Option<(u64, ControlLine)>,
}

#[derive(Debug)]
pub(crate) struct RemoteRequestReceiver {
    requests: mpsc::Receiver<RemoteRequest>,
    answers: RemoteAnswerSender,
}

#[derive(Debug, Clone)]
pub(crate) struct RemoteAnswerSender {
    queue: AnswerQueue,
    channels: Arc<Channels>,
}

/// Creates both ends. An answer wakes the sender through the event on which the sender waits anyway.
pub(crate) fn channel(channels: Arc<Channels>) -> (RemoteRequestSender, RemoteRequestReceiver) {
    let (sender, requests) = mpsc::channel(REQUESTS);
    let queue = Arc::new(ArrayQueue::new(ANSWERS));
    let answers = RemoteAnswerSender { queue: Arc::clone(&queue), channels };
    let sender = RemoteRequestSender { requests: sender, answers: queue, held: None };
    (sender, RemoteRequestReceiver { requests, answers })
}

impl RemoteRequestSender {
    /// Returns false where there is no room for it.
    pub(crate) fn offer(&self, request: RemoteRequest) -> bool {
        self.requests.try_send(request).is_ok()
    }

    pub(crate) fn next_answer(&mut self) -> Option<(u64, ControlLine)> {
        self.held.take().or_else(|| self.answers.pop())
    }

    /// Keeps an answer until [`Self::next_answer`] is called again.
    pub(crate) fn hold(&mut self, answer: (u64, ControlLine)) {
        self.held = Some(answer);
    }
}

impl RemoteRequestReceiver {
    /// Returns none once the sender has ended.
    pub(crate) async fn next(&mut self) -> Option<RemoteRequest> {
        self.requests.recv().await
    }

    pub(crate) fn answers(&self) -> RemoteAnswerSender {
        self.answers.clone()
    }
}

impl RemoteAnswerSender {
    pub(crate) fn give(&self, id: u64, line: ControlLine) {
        // Without room the answer is dropped, and the user gets "no answer".
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
    fn drops_requests_and_answers_without_room() {
        let (mut sender, receiver) = channel(Arc::new(Channels::new().unwrap()));
        let request = |id| RemoteRequest { id, uid: 0, at_us: 0, line: line("{}") };
        let taken = (0..1000).filter(|id| sender.offer(request(*id))).count();
        assert_eq!(taken, REQUESTS);
        for id in 0..1000 {
            receiver.answers().give(id, line("{}"));
        }
        let answer = sender.next_answer().unwrap();
        sender.hold(answer);
        let sent: Vec<_> = std::iter::from_fn(|| sender.next_answer()).map(|(id, _)| id).collect();
        assert_eq!(sent, (0..ANSWERS as u64).collect::<Vec<_>>());
        drop(receiver);
        assert!(!sender.offer(request(0)));
    }
}
