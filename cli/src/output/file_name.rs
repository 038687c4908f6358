//! Names of files that contain the id of a job.

pub(crate) fn file_name_of(job_id: &str) -> String {
    job_id.replace(|letter: char| !letter.is_alphanumeric() && !matches!(letter, '.' | '-' | '_' | '+'), "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_cannot_lead_to_another_directory() {
        assert_eq!(file_name_of("../4242[1]"), ".._4242_1_");
        assert_eq!(file_name_of("run-1.batch_2"), "run-1.batch_2");
        assert_eq!(file_name_of("4009+1"), "4009+1");
    }
}
