#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/job_spec.hpp"
#include "base/error.hpp"
#include "base/files/folder_fence.hpp"
#include "models/checkpoint/store.hpp"
#include "models/ranks/rank_group.hpp"
#include "pipeline/core/student_snapshot.hpp"
#include "pipeline/data/dataset.hpp"
#include "pipeline/data/mixed_dataset.hpp"
#include "pipeline/data/teacher_tokenizer.hpp"
#include "pipeline/data/token_cache.hpp"
#include "pipeline/graph/student.hpp"
#include "pipeline/graph/teacher/teacher_turn.hpp"
#include "pipeline/graph/training_graph.hpp"
#include "pipeline/teacher/teacher_source.hpp"
#include "server/sinks/run_sinks.hpp"
#include "server/teacher/host_teacher.hpp"
#include "server/worker/emit_event.hpp"
#include "server/worker/orders.hpp"
#include "server/worker/rollout/rollout_run.hpp"
#include "server/worker/teacher/teacher_connection.hpp"
#include "server/worker/text_samples.hpp"

namespace distilld {

/// A job that is ready to run, with all that its graph needs.
struct PreparedRun {
    JobSpec spec;  ///< with effective values: threads, the device, and the chosen batch size
    std::unique_ptr<Student> student;
    std::shared_ptr<const Dataset> dataset;
    std::shared_ptr<const Dataset> eval;         ///< null: none
    std::shared_ptr<const Dataset> stand_ins{};  ///< rows in place of prompts without an answer; null: none
    std::string data_hash;                       ///< of `dataset` and `stand_ins`
    std::unique_ptr<TokenCache> tokens;          ///< null: dataset.cache is false
    bool exports_byte_tokenizer = false;         ///< the text was read byte by byte, by the built-in tokenizer
    TextSamples samples;                         ///< at each evaluation; empty: none
    std::string tokenizer;                       ///< describes what read the data, in one line
    std::string tokenizer_hash;                  ///< of the tokenizer that read text; empty: no text
    TokenizerSigns tokenizer_signs;              ///< of the student's, for its teachers
    std::shared_ptr<const TeacherTokenizer> teacher_tokenizer{};  ///< null: the teachers have the student's
    std::shared_ptr<const Tokenizer> shown_with{};                ///< reads answers that are shown; null: none
    std::vector<FolderFence> fences;                   ///< of output, and of the checkpoints if it is another folder
    std::shared_ptr<const MixedDataset> mixed{};       ///< the dataset, if its rows name their teachers
    std::shared_ptr<const MixedDataset> mixed_eval{};  ///< the held-out set, if its rows name their teachers
    std::vector<ConnectedTeacher> teachers{};          ///< in the order of the spec; empty: none needed
    std::vector<ConnectedTeacher> of_held_out{};       ///< asked by evaluations, in the same order; empty: nobody
    std::shared_ptr<TeacherTurn> turn{};               ///< shared by training and evaluation
    std::unique_ptr<RolloutRun> rollout{};             ///< null: no step is left, or the job has no /rollout
    RunState resumed;                                  ///< step 0: a first run
    std::string resumed_from;                          ///< folder of its checkpoint; empty: a first run
    std::uint32_t planned_batch_size = 0;              ///< planned_batch_size() of that checkpoint; 0: a first run
    bool replaces_checkpoints = false;                 ///< those of an earlier run will be removed
    std::vector<std::filesystem::path> damaged_checkpoints{};  ///< will be set aside
    std::uint64_t total_steps = 0;
    models::RankGroup* ranks = nullptr;  ///< outlives the run; null: there is one rank
    /// In the order of their numbers: the ranks on this host, with this one. The first loads teachers for the others.
    std::vector<std::uint32_t> host_ranks{};
    std::map<std::string, std::unique_ptr<teacher::HostTeacher>> host_teachers{};  ///< that this rank has loaded
    std::map<std::string, teacher::HostTeacherPlace> teacher_places{};             ///< where they answer
    JobAttempt attempt;                                                            ///< the service's; no job: none
    std::unique_ptr<sinks::RunSinks> sinks;  ///< null until everything else is ready

    /// Of the folder of the export and of that of the checkpoints; null for ranks that write neither.
    [[nodiscard]] FolderFence* output_fence() { return fences.empty() ? nullptr : &fences.front(); }
    [[nodiscard]] FolderFence* checkpoint_fence() { return fences.empty() ? nullptr : &fences.back(); }
    /// Another rank reports, evaluates, and writes checkpoints and the model.
    [[nodiscard]] bool follows() const { return ranks != nullptr && ranks->rank() > 0; }
    /// This rank loads the teachers that its host's ranks share.
    [[nodiscard]] bool leads_host() const { return ranks == nullptr || host_ranks.front() == ranks->rank(); }
};

/// In this order: loads the student (compute) and the data (staging), takes the folders, finds the checkpoint to resume
/// from (`resume`: find_starting_point()'s `ordered`), chooses the batch size if the spec leaves it open, connects the
/// teachers if any step is left, opens the sinks, and removes checkpoints that the spec allows to replace. So every
/// refusal comes before the first step, and before a file of another run is touched. Only `run.spec` is given. Error of
/// kind `cancelled`: `control` was. Executor of `executors.io`.
boost::asio::awaitable<Result<void>> prepare(PreparedRun& run, bool resume, GraphExecutors executors,
                                             RunControl& control, EmitEvent emit);

/// prepare() for the other ranks, with exchange_teacher_places(). Touches no folder; `words`: words_to_ranks().
boost::asio::awaitable<Result<void>> prepare_along(PreparedRun& run, std::string words, GraphExecutors executors,
                                                   RunControl& control, EmitEvent emit);

}  // namespace distilld
