//! Places of reads: as many as there are readers. One user gets all but one of them, so that another one
//! does not wait for long reads. Administrators have another place, which ordinary users never take.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::access::KnownAdministrators;
use crate::answer::Problem;
use crate::limits;

#[derive(Debug)]
pub(crate) struct ReaderPlaces {
    all: Arc<Semaphore>,
    reserved: Arc<Semaphore>,
    administrators: KnownAdministrators,
    user: usize,
    of_users: Mutex<HashMap<u32, Arc<Semaphore>>>,
}

/// Place for one read, returned on drop.
#[derive(Debug)]
pub(crate) struct Place {
    _of_all: OwnedSemaphorePermit,
    _of_user: OwnedSemaphorePermit,
}

impl ReaderPlaces {
    pub(crate) fn new(readers: usize, administrators: KnownAdministrators) -> Self {
        let all = Arc::new(Semaphore::new(readers));
        let reserved = Arc::new(Semaphore::new(limits::RESERVED_READS));
        Self {
            all,
            reserved,
            administrators,
            user: readers.saturating_sub(1).max(1),
            of_users: Mutex::default(),
        }
    }

    /// Waits for a place if necessary.
    pub(crate) async fn take(&self, uid: u32) -> Result<Place, Problem> {
        let of_user = self.of_user(uid);
        let place = async {
            // A request that waits for other reads of the same user takes no place from others.
            let of_user = of_user.acquire_owned().await.ok()?;
            let of_all = Arc::clone(&self.all).acquire_owned();
            let of_all = if self.administrators.contains(uid) {
                tokio::select! {
                    biased;
                    place = of_all => place.ok()?,
                    place = Arc::clone(&self.reserved).acquire_owned() => place.ok()?,
                }
            } else {
                of_all.await.ok()?
            };
            Some(Place { _of_all: of_all, _of_user: of_user })
        };
        // The semaphores are never closed.
        timeout(limits::READER_TIMEOUT, place).await.ok().flatten().ok_or_else(|| {
            let detail = "too many requests are reading; try again later";
            Problem::busy(detail, 5)
        })
    }

    fn of_user(&self, uid: u32) -> Arc<Semaphore> {
        let mut of_users = self.of_users.lock().unwrap_or_else(PoisonError::into_inner);
        // A permit and a request that waits have a reference of their own.
        of_users.retain(|_, places| Arc::strong_count(places) > 1);
        Arc::clone(of_users.entry(uid).or_insert_with(|| Arc::new(Semaphore::new(self.user))))
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn take(places: &ReaderPlaces, uid: u32) -> Option<Place> {
        let mut taking = std::pin::pin!(places.take(uid));
        match taking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(place) => place.ok(),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn one_user_leaves_a_place_to_others() {
        let places = ReaderPlaces::new(4, KnownAdministrators::new([7].into_iter()));
        let mut held: Vec<Place> = (0..3).filter_map(|_| take(&places, 1)).collect();
        assert_eq!(held.len(), 3);
        assert!(take(&places, 1).is_none(), "the last place is for others");
        let other = take(&places, 2);
        assert!(other.is_some() && take(&places, 3).is_none(), "all places are taken");
        for administrator in [0, 7] {
            let kept = take(&places, administrator);
            assert!(kept.is_some() && take(&places, administrator).is_none() && take(&places, 3).is_none());
        }
        held.pop();
        assert!(take(&places, 3).is_some());
        drop((held, other));
        assert!(take(&places, 4).is_some());
        assert_eq!(places.of_users.lock().unwrap().len(), 1, "users without reads are forgotten");
    }

    #[tokio::test]
    async fn a_single_place_is_for_everyone() {
        let places = ReaderPlaces::new(1, KnownAdministrators::default());
        let place = take(&places, 1);
        assert!(place.is_some() && take(&places, 2).is_none());
        drop(place);
        assert!(take(&places, 2).is_some());
    }
}
