#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "api/spec_fields.hpp"
#include "base/error.hpp"
#include "pipeline/core/job_spec.hpp"

namespace distilld {

/// One of several teachers.
struct TeacherMark {
    std::string fingerprint{};  ///< empty = not known
    bool deterministic = true;  ///< it says the same when it is asked again
};

/// What a run depends on beside its spec and its data.
struct Surroundings {
    std::string libtorch{};                         ///< version; empty = not known
    std::string teacher{};                          ///< fingerprint; empty = none, or not known
    bool teacher_deterministic = true;              ///< it says the same when it is asked again
    std::map<std::string, TeacherMark> teachers{};  ///< several, by name
    bool rows_by_length = false;                    ///< rows of like lengths share micro-batches
    std::uint32_t planned_batch_size = 0;           ///< of the run's first checkpoint; 0 = the spec's
    bool ends_epochs = false;                       ///< steps end with an epoch (RowOrder::ends_epochs)
};

/// What a checkpoint remembers of its run: the spec with the values in force, the hash of the dataset and the
/// surroundings, as JSON text. Queries of URLs, which may hold keys, are not in it. The table says which fields there
/// are, and which of them decide weights.
[[nodiscard]] std::string make_run_identity(const JobSpec& spec, const std::string& dataset_hash,
                                            const api::SpecTable& table = api::spec_table(),
                                            const Surroundings& surroundings = {});

/// Whether a run with `identity` may go on with `spec`: the dataset and every field that decides weights must be the
/// same; others may differ. The error names the first field that does. Steps may be cut into micro-batches otherwise,
/// as a worker out of memory has it: of half as many rows, or a quarter, and so on of those that the run began with,
/// and as many more of them. A step has the same rows then, and the same loss and gradients but for the order of their
/// sums. (Checkpoints of version 0.1 may say dtype "auto", which came to the same on the same machine: it is let pass.)
[[nodiscard]] Result<void> check_run_identity(const std::string& identity, const JobSpec& spec,
                                              const std::string& dataset_hash,
                                              const api::SpecTable& table = api::spec_table());

/// One line for each field that differs and decides the last bits of weights, as the number of threads does, among
/// which libtorch splits its sums; and one for another libtorch. That is no reason to refuse a resume on another
/// machine, but one to say so. `spec` holds the values in force.
[[nodiscard]] std::vector<std::string> last_bits_warnings(const std::string& identity, const JobSpec& spec,
                                                          const api::SpecTable& table = api::spec_table(),
                                                          const Surroundings& surroundings = {});

/// Whether the run with `identity` began with the weights that `spec` names, by their folder and the way to make them.
/// Only a person knows whether a folder has merely moved. The error names the first field that differs.
[[nodiscard]] Result<void> check_first_weights(const std::string& identity, const JobSpec& spec,
                                               const api::SpecTable& table = api::spec_table());

/// What is to be said of a run that goes on with a teacher that the one with `identity` did not have; empty: it is the
/// same as far as can be told. An error (it names the field) where both teachers say the same whenever they are asked,
/// so that the difference is one of models; with "overwrite" in the spec it is a warning, as it is for teachers of whom
/// nothing is certain.
[[nodiscard]] Result<std::string> check_teacher(const std::string& identity, const JobSpec& spec,
                                                const Surroundings& surroundings);

/// The hash of the dataset of the run with `identity`; empty: it does not say.
[[nodiscard]] std::string dataset_of(const std::string& identity);

/// Surroundings::rows_by_length of the run with `identity`. Earlier versions took rows as they came.
[[nodiscard]] bool rows_were_by_length(const std::string& identity);

/// Surroundings::ends_epochs of the run with `identity`. The steps of earlier versions ran on.
[[nodiscard]] bool ended_epochs(const std::string& identity);

/// Rows of the micro-batches that the run with `identity` began with; 0: it does not say.
[[nodiscard]] std::uint32_t planned_batch_size(const std::string& identity);

/// What `spec` leaves open the run that is resumed has decided: batch_size and micro_batches, where they would be
/// chosen, what becomes of documents that are longer than a row (earlier versions left out what does not fit), and the
/// arithmetic of the student and of teachers in the process, where that would be what this machine is fast at, and what
/// the teacher sends, where that would be asked what it offers. (A checkpoint older than that field was made with top-k
/// rows or full logits, as top_k says; one that says dtype "auto" leaves that open.)
void adopt_decisions(const std::string& identity, JobSpec& spec);

}  // namespace distilld
