#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/folder_lock.hpp"
#include "models/checkpoint/store.hpp"
#include "pipeline/core/job_spec.hpp"
#include "pipeline/core/student_snapshot.hpp"
#include "pipeline/data/dataset.hpp"
#include "pipeline/data/token_cache.hpp"
#include "pipeline/graph/student.hpp"
#include "pipeline/graph/teacher_turn.hpp"
#include "pipeline/graph/training_graph.hpp"
#include "pipeline/teacher/teacher_source.hpp"
#include "server/sinks/run_sinks.hpp"
#include "server/worker/emit_event.hpp"
#include "server/worker/orders.hpp"
#include "server/worker/several_teachers.hpp"
#include "server/worker/text_samples.hpp"

namespace distilld {

/// A job that nothing speaks against any more, with all that its graph needs.
struct PreparedRun {
    JobSpec spec;  ///< with what is in force: threads, the device, and the batch size that was chosen
    std::unique_ptr<Student> student;
    std::shared_ptr<const Dataset> dataset;
    std::shared_ptr<const Dataset> eval;               ///< null: none
    std::unique_ptr<TokenCache> tokens;                ///< null: dataset.cache is false
    bool exports_byte_tokenizer = false;               ///< the text was read byte by byte, by the built-in tokenizer
    TextSamples samples;                               ///< at each evaluation; empty: none
    std::string tokenizer;                             ///< what read the data, in one line
    std::string tokenizer_hash;                        ///< of what read text; empty: there was none
    TokenizerSigns tokenizer_signs;                    ///< of the student's, for its teachers
    std::vector<FolderLock> locks;                     ///< output and checkpoint folder are ours
    std::unique_ptr<TeacherSource> teacher;            ///< null: plain training, or several
    TeacherInfo teacher_info;                          ///< of the probe; empty without a teacher
    std::shared_ptr<const MixedDataset> mixed{};       ///< the dataset, when it is of several teachers
    std::vector<NamedTeacher> several{};               ///< teachers, in the order of its parts
    TeacherSource* asked = nullptr;                    ///< ConnectedTeacher::asked, of `teacher`
    bool asked_in_need = false;                        ///< ConnectedTeacher::asked_in_need
    std::shared_ptr<const MixedDataset> mixed_eval{};  ///< the held-out set, when it is of several teachers
    std::shared_ptr<TeacherTurn> turn{};               ///< of training and evaluation
    std::vector<NamedTeacher> of_held_out{};  ///< whom evaluations ask, one without a name or in the order of the parts
    RunState resumed;                         ///< step 0: a first run
    std::string resumed_from;                 ///< folder of its checkpoint; empty: a first run
    std::uint32_t planned_batch_size = 0;     ///< planned_batch_size() of that checkpoint; 0: a first run
    bool replaces_checkpoints = false;        ///< those of an earlier run are to go
    std::vector<std::filesystem::path> damaged_checkpoints{};  ///< are to be set aside
    std::uint64_t total_steps = 0;
    std::string job_id;                      ///< the service's; empty: none
    std::unique_ptr<sinks::RunSinks> sinks;  ///< null until everything else is ready
};

/// Loads the student (compute) and the data (staging), takes the folders, finds the checkpoint to go on from (`resume`:
/// as find_starting_point()'s `ordered`), chooses the batch size where the spec leaves it open, connects the teacher
/// where there is a step left to do, opens the sinks, and removes checkpoints that the spec allows to replace, in this
/// order: everything that can be refused is refused before the first step and before a file of another run is touched.
/// `run.spec` is given, the rest is filled in. An error of kind `cancelled`: `control` was. Executor of `executors.io`.
boost::asio::awaitable<Result<void>> prepare(PreparedRun& run, bool resume, GraphExecutors executors,
                                             RunControl& control, EmitEvent emit);

}  // namespace distilld
