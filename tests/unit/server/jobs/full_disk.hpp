#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "server/jobs/store/job_store.hpp"

namespace distilld::test {

/// A store whose disk is full while `full` is set.
class FullDisk : public JobStore {
  public:
    FullDisk(std::unique_ptr<JobStore> inner, std::shared_ptr<std::atomic<bool>> full)
        : inner_(std::move(inner)), full_(std::move(full)) {}
    std::vector<std::uint64_t> create_all(std::span<const NewJob> jobs) override {
        return check(), inner_->create_all(jobs);
    }
    bool set_metadata(std::string_view id, const std::map<std::string, std::string>& metadata) override {
        return check(), inner_->set_metadata(id, metadata);
    }
    std::optional<StoredJob> get(std::string_view id) override { return inner_->get(id); }
    std::optional<StoredJob> find_by_key(std::string_view key, std::string_view time) override {
        return inner_->find_by_key(key, time);
    }
    JobPage list(const JobQuery& query) override { return inner_->list(query); }
    std::vector<StoredJob> unfinished() override { return inner_->unfinished(); }
    void ended(const std::function<void(const api::Job&)>& take) override { inner_->ended(take); }
    std::vector<std::pair<api::JobState, std::uint64_t>> counts() override { return inner_->counts(); }
    std::uint64_t append_events(std::string_view id, std::span<const api::JobEvent> events,
                                const JobChange& change) override {
        check();
        return inner_->append_events(id, events, change);
    }
    void try_write() override { check(), inner_->try_write(); }
    std::unique_ptr<JobReader> open_reader() override { return inner_->open_reader(); }
    void drop_metrics(std::string_view id, std::uint64_t sequence) override { inner_->drop_metrics(id, sequence); }
    void drop_messages(std::string_view id, std::uint32_t kept) override { inner_->drop_messages(id, kept); }
    EventPage events(std::string_view id, std::uint64_t after, std::uint32_t limit) override {
        return inner_->events(id, after, limit);
    }
    EventPage events_before(std::string_view id, std::uint64_t before, std::uint32_t limit) override {
        return inner_->events_before(id, before, limit);
    }
    std::vector<api::JobCheckpoint> checkpoints(std::string_view id) override { return inner_->checkpoints(id); }
    void measurements(std::string_view id, const std::function<void(const api::JobEvent&)>& take) override {
        inner_->measurements(id, take);
    }
    bool remove_all(std::span<const std::string> ids) override {
        check();
        return inner_->remove_all(ids);
    }

  private:
    void check() const {
        if (*full_) {
            throw ErrorException(io_error("jobs.sqlite: database or disk is full"));
        }
    }
    std::unique_ptr<JobStore> inner_;
    std::shared_ptr<std::atomic<bool>> full_;
};

}  // namespace distilld::test
