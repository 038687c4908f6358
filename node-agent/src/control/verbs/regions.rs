//! `regions`: the sums of the regions of an instrumented process.

use polymeter_proto::control::{Answer, Refusal, RegionSums, RegionsRequest, identifier, invalid};
use polymeter_proto::series::{InvalidIdentifier, Labels};

use super::{Execute, annotation};
use crate::control::request_handler::RequestHandler;
use crate::principal::Principal;
use crate::request::{RegionSpec, RegionsSpec, SupervisorRequest};

/// Most regions in a request: more than the library sends.
const REGIONS: usize = 256;

impl Execute for RegionsRequest {
    type Spec = RegionsSpec;

    fn parse(self, principal: Principal) -> Result<RegionsSpec, Refusal> {
        if self.regions.len() > REGIONS {
            return Err(invalid("regions", &format!("more than {REGIONS} regions")));
        }
        let regions: Result<Vec<RegionSpec>, _> =
            self.regions.into_iter().map(|region| spec_of(region, self.process, self.rank)).collect();
        Ok(RegionsSpec {
            principal,
            job_id: identifier("job", &self.job)?,
            is_last: self.is_last,
            regions: regions.map_err(|error| invalid("regions", &error))?,
        })
    }

    async fn execute(regions: RegionsSpec, handler: &RequestHandler<'_>) -> Result<Answer, Refusal> {
        let job = regions.job_id.clone();
        let recorded = handler.ask(|reply| SupervisorRequest::Regions(Box::new(regions), reply)).await?;
        recorded.map_err(|error| annotation::refuse(handler, Some(&job), error))?;
        Ok(Answer::Done {})
    }
}

/// Names the series of a region. Names are those of programs, so that invalid characters are escaped.
fn spec_of(region: RegionSums, process: u32, rank: Option<u32>) -> Result<RegionSpec, InvalidIdentifier> {
    let RegionSums { name, entries, time_ns, self_ns, thread_ns, threads } = region;
    let mut labels = vec![("region".to_owned(), name), ("process".to_owned(), process.to_string())];
    labels.extend(rank.map(|rank| ("rank".to_owned(), rank.to_string())));
    Ok(RegionSpec {
        labels: Labels::escaped(labels)?,
        values: [entries, time_ns, self_ns, thread_ns, threads],
    })
}
