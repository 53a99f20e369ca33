#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/jobs/store/job_store.hpp"
#include "tests/simulation/cluster_stage.hpp"

namespace distilld::test {

/// The disk with the job store, which outlives each run of the service. It can be full, and it can end the service
/// before or after a commit.
class StoreDisk {
  public:
    StoreDisk(Stage& stage, std::unique_ptr<JobStore> store) : stage_(stage), store_(std::move(store)) {}

    [[nodiscard]] JobStore& store() { return *store_; }
    /// Calls `kill` at a commit: that of the number `writes` from here.
    void arm(std::uint64_t writes, bool before, std::function<void()> kill);
    void disarm() { kill_ = nullptr; }
    void fill(bool full) { full_ = full; }

    /// Of the running attempt of a job, in the store: the number of its relay's last message.
    [[nodiscard]] std::uint64_t received(const std::string& job, std::uint64_t attempt) const;
    /// Slurm's id of the attempt's job has been stored.
    [[nodiscard]] bool had_place(const std::string& job, std::uint64_t attempt) const {
        return placed_.contains({job, attempt});
    }
    /// The store knows of no end of the attempt.
    [[nodiscard]] bool is_open(const std::string& job, std::uint64_t attempt) const;

    /// For the service's view of it: `write` is one transaction. Throws Killed, or ErrorException when it is full.
    template <class Write>
    auto commit(Write write) {
        before_commit();
        auto written = write();
        after_commit();
        return written;
    }
    void note(const StoredJob& job);
    [[nodiscard]] bool loses_this() { return stage_.has(ClusterOptions::Defect::loses_commits) && stage_.chance(20); }

  private:
    struct Known {
        std::uint64_t attempt = 0;
        std::uint64_t received = 0;
        bool open = false;
    };
    void before_commit();
    void after_commit();
    void end_service();

    Stage& stage_;
    std::unique_ptr<JobStore> store_;
    std::function<void()> kill_;
    std::uint64_t writes_ = 0;
    bool before_ = false;
    bool full_ = false;
    std::map<std::string, Known> known_;
    std::set<std::pair<std::string, std::uint64_t>> placed_;
};

/// What one run of the service has of it.
std::unique_ptr<JobStore> make_service_store(StoreDisk& disk, const Process& service);

}  // namespace distilld::test
