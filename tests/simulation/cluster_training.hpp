#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/async/condition.hpp"
#include "server/supervisor/worker_process.hpp"
#include "tests/simulation/cluster_folder.hpp"
#include "tests/simulation/cluster_stage.hpp"

namespace distilld::test {

/// What workers have said, as lines of the history, by job and attempt.
using Said = std::map<std::pair<std::string, std::uint64_t>, std::vector<std::string>>;

/// A worker at work: it takes its folder, says each step, commits checkpoints and the export. It lives in the process
/// of its relay, but it can stop or die alone.
class Training : public std::enable_shared_from_this<Training> {
  public:
    Training(Stage& stage, JobFolders& folders, Said& said, std::weak_ptr<Process> relay, std::uint32_t node);

    void begin(const WorkerStart& start, WorkerProcess::EventHandler on_event);
    void order(const WorkerCommand& command);
    void kill_in(Millis delay);
    /// It ends at once, and its supervisor says this of it.
    void die(const char* kind, const std::string& why, int exit_code);
    void stop(Millis length);

    [[nodiscard]] bool ended() const { return ended_; }
    [[nodiscard]] int exit_code() const { return exit_code_; }
    [[nodiscard]] Condition& changed() { return changed_; }

  private:
    void later(Millis delay, void (Training::*work)());
    void take_folder();
    void train();
    void end_early();
    bool commit(bool exported);
    void say(const WorkerEvent& event);
    void end_with(const WorkerEvent& event, int exit_code);

    Stage& stage_;
    JobFolders& folders_;
    Said& said_;
    std::weak_ptr<Process> relay_;
    Condition changed_;
    WorkerProcess::EventHandler on_event_;
    std::string job_;
    std::uint64_t attempt_ = 0;
    std::shared_ptr<FolderHolder> holder_;
    Millis asked_ = 0;  ///< for the folder
    std::uint32_t step_ = 0;
    std::uint32_t saved_ = 0;  ///< step of the newest checkpoint
    std::uint64_t weights_ = 1;
    bool begun_ = false;
    bool checkpoint_due_ = false;
    std::optional<bool> cancelled_;  ///< with a checkpoint or not
    bool ended_ = false;
    int exit_code_ = 0;
};

/// For a relay.
std::unique_ptr<WorkerProcess> make_simulated_worker(std::shared_ptr<Training> training);

}  // namespace distilld::test
