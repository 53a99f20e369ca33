#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "api/job_spec.hpp"
#include "api/spec_fields.hpp"
#include "base/error.hpp"

namespace distilld {

/// Identifies a teacher.
struct TeacherMark {
    std::string fingerprint{};  ///< empty = unknown
    bool deterministic = true;  ///< it answers the same when asked again
};

/// What a run depends on besides its spec and its data.
struct RunEnvironment {
    std::string libtorch{};                         ///< version; empty = unknown
    std::map<std::string, TeacherMark> teachers{};  ///< by name, as JobSpec::teachers
    bool rows_by_length = false;                    ///< rows of similar length share micro-batches
    std::uint32_t planned_batch_size = 0;           ///< of the run's first checkpoint; 0 = the spec's
    bool ends_epochs = false;                       ///< steps end with an epoch (RowOrder::ends_epochs)
};

/// The identity of a run in its checkpoints, as JSON text: the spec with effective values, the hash of the dataset and
/// the environment. Leaves out queries of URLs, which may hold keys. The table in the .cpp lists the fields, and which
/// of them decide weights.
[[nodiscard]] std::string make_run_identity(const JobSpec& spec, const std::string& dataset_hash,
                                            const api::SpecTable& table = api::spec_table(),
                                            const RunEnvironment& environment = {});

/// Whether a run with `identity` may continue with `spec`: the dataset and every field that decides weights must be
/// equal. The error names the first that differs. Steps may be divided into smaller micro-batches, as after running out
/// of memory: with a half, a quarter, and so on of the original rows, and more of them accordingly. Then a step has the
/// same rows, and the same loss and gradients except for the order of their sums. (Checkpoints of version 0.1 may say
/// dtype "auto", which is accepted: it meant the same on the same machine.)
[[nodiscard]] Result<void> check_run_identity(const std::string& identity, const JobSpec& spec,
                                              const std::string& dataset_hash,
                                              const api::SpecTable& table = api::spec_table());

/// One line for each differing field that decides the last bits of weights (such as the number of threads, by which
/// libtorch splits its sums), and one for another libtorch. They are warnings, not reasons to refuse a resume on
/// another machine. `spec` must hold effective values.
[[nodiscard]] std::vector<std::string> last_bits_warnings(const std::string& identity, const JobSpec& spec,
                                                          const api::SpecTable& table = api::spec_table(),
                                                          const RunEnvironment& environment = {});

/// Whether the run with `identity` began with the weights that `spec` names, judged by their folder and the way to make
/// them. Only a person knows whether a folder was just moved. The error names the first field that differs.
[[nodiscard]] Result<void> check_first_weights(const std::string& identity, const JobSpec& spec,
                                               const api::SpecTable& table = api::spec_table());

/// A warning if the run with `identity` had another teacher; empty: it is the same, as far as is known. If both
/// teachers always repeat their answers, so that the models must differ, it is an error that names the field. With
/// "overwrite" in the spec it is only a warning, as for teachers that do not repeat their answers.
[[nodiscard]] Result<std::string> check_teacher(const std::string& identity, const JobSpec& spec,
                                                const RunEnvironment& environment);

/// The dataset's hash of the run with `identity`; empty: unknown.
[[nodiscard]] std::string dataset_of(const std::string& identity);

/// RunEnvironment::rows_by_length of the run with `identity`. Earlier versions took rows in their order.
[[nodiscard]] bool rows_were_by_length(const std::string& identity);

/// RunEnvironment::ends_epochs of the run with `identity`. In earlier versions steps crossed epochs.
[[nodiscard]] bool ended_epochs(const std::string& identity);

/// Rows per micro-batch at the start of the run with `identity`; 0: unknown.
[[nodiscard]] std::uint32_t planned_batch_size(const std::string& identity);

/// Fills what `spec` leaves open with the decisions of the run that is resumed: batch_size and micro_batches; the
/// handling of documents that are longer than a row (earlier versions dropped the excess); the arithmetic of the
/// student and of teachers in the process; and what the teacher sends. (A checkpoint older than that last field used
/// top-k rows or full logits, depending on top_k. One that says dtype "auto" leaves it open.)
void adopt_decisions(const std::string& identity, JobSpec& spec);

}  // namespace distilld
