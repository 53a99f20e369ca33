#include "tests/simulation/cluster_check.hpp"

#include <algorithm>
#include <string>
#include <string_view>

namespace distilld::test {
namespace {

using api::JobState;

/// Of one job and its history.
class JobCheck {
  public:
    JobCheck(Stage& stage, const JobFolder& folder, const Said& said, const api::Job& job)
        : stage_(stage), folder_(folder), said_(said), job_(job) {}

    void check_end(const User& user, const SimulatedSlurm& slurm) const {
        if (job_.state == JobState::succeeded) {
            if (job_.weights_sha256 != std::to_string(weights_after(stage_.options().steps)) || !folder_.exported()) {
                violate("succeeded with other weights than an undisturbed run");
            }
        } else if (job_.state != JobState::cancelled) {
            violate(std::string("is ") + api::to_string(job_.state) + ": " +
                    (job_.status_reason ? job_.status_reason->message : ""));
        } else if (!user.asked_to_cancel() &&
                   std::ranges::none_of(slurm.cancelled_outside(), [this](const std::string& name) {
                       return name.starts_with("distilld-" + job_.id + "-");
                   })) {
            violate("is cancelled, and nobody asked for it");
        }
        if (user.cancelled() && job_.state != JobState::cancelled && !folder_.exported()) {
            violate("was cancelled, and did not end so");
        }
    }

    /// Neither a restart of the service nor a controller that is away replaces a worker.
    void check_attempts(const StoreDisk& disk) const {
        for (const auto& [key, lines] : said_) {
            const auto& [job, attempt] = key;
            const std::string name = job + "-" + std::to_string(attempt);
            if (job == job_.id && attempt < job_.attempt && disk.had_place(job, attempt) &&
                !stage_.is_disturbed(name)) {
                violate("has replaced attempt " + std::to_string(attempt) + ", to which nothing has happened");
            }
        }
    }

    void check_history(const std::vector<api::JobEvent>& events) {
        for (const api::JobEvent& event : events) {
            ++sequence_;
            if (event.sequence != sequence_) {
                violate("event " + std::to_string(event.sequence) + " is where " + std::to_string(sequence_) +
                        " was due");
            }
            if (ended_) {
                violate("\"" + event.message + "\" follows its end");
            }
            if (event.message.starts_with("attempt ")) {
                take_line(event.message);
            }
            ended_ = ended_ || (event.type == api::EventType::state && event.data.contains("state") &&
                                event.data.at("state").as_string() == api::to_string(job_.state));
        }
        if (!ended_) {
            violate("its history does not have its end");
        }
        const auto last = said_.find({job_.id, attempt_});
        if (job_.state == JobState::succeeded && last != said_.end() && attempt_ == job_.attempt &&
            lines_ != last->second.size()) {
            violate("its history lacks lines of the last attempt");
        }
    }

  private:
    void violate(const std::string& what) const { stage_.violate(job_.id + " " + what); }

    /// "attempt N line M"
    void take_line(const std::string& line) {
        const auto attempt = std::stoull(line.substr(std::string_view("attempt ").size()));
        if (attempt < attempt_) {
            violate("\"" + line + "\" follows a line of attempt " + std::to_string(attempt_));
            return;
        }
        lines_ = attempt == attempt_ ? lines_ : 0;
        attempt_ = attempt;
        const auto said = said_.find({job_.id, attempt});
        if (said == said_.end() || lines_ >= said->second.size() || said->second[lines_] != line) {
            violate("\"" + line + "\" is where line " + std::to_string(lines_) + " of the attempt was due");
        }
        ++lines_;
    }

    Stage& stage_;
    const JobFolder& folder_;
    const Said& said_;
    const api::Job& job_;
    std::uint64_t sequence_ = 0;
    std::uint64_t attempt_ = 0;
    std::size_t lines_ = 0;  ///< of that attempt
    bool ended_ = false;
};

}  // namespace

void check_cluster(Stage& stage, StoreDisk& disk, const JobFolders& folders, const Said& said,
                   const std::vector<std::unique_ptr<User>>& users, const SimulatedSlurm& slurm) {
    JobStore& store = disk.store();
    std::size_t kept = 0;
    for (const auto& user : users) {
        const auto stored = store.get(user->job());
        if (user->deleted() || !user->accepted()) {
            if (stored) {
                stage.violate(user->job() + " was deleted, and is there");
            }
            continue;
        }
        ++kept;
        if (!stored) {
            stage.violate(user->job() + " is lost");
            continue;
        }
        JobCheck check(stage, folders.at(user->job()), said, stored->job);
        check.check_end(*user, slurm);
        if (!user->pauses()) {
            check.check_attempts(disk);
        }
        const auto events = store.events(user->job(), 0, 100'000).events;
        check.check_history(events);
        stage.result.events += events.size();
    }
    if (const auto jobs = store.list({.after = {}, .limit = 1000, .state = {}}).jobs.size(); jobs != kept) {
        stage.violate(std::to_string(jobs) + " jobs are stored for " + std::to_string(kept) + " submissions");
    }
}

}  // namespace distilld::test
