#include "tests/simulation/cluster_store.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/error.hpp"

namespace distilld::test {
namespace {

/// Nothing reads in another thread: the manager's reader is the store itself.
class SameReader final : public JobReader {
  public:
    explicit SameReader(JobReader& inner) : inner_(inner) {}
    std::optional<StoredJob> get(std::string_view id) override { return inner_.get(id); }
    JobPage list(const JobQuery& query) override { return inner_.list(query); }
    EventPage events(std::string_view id, std::uint64_t after, std::uint32_t limit) override {
        return inner_.events(id, after, limit);
    }
    EventPage events_before(std::string_view id, std::uint64_t before, std::uint32_t limit) override {
        return inner_.events_before(id, before, limit);
    }
    std::vector<api::JobCheckpoint> checkpoints(std::string_view id) override { return inner_.checkpoints(id); }
    void measurements(std::string_view id, const std::function<void(const api::JobEvent&)>& take) override {
        inner_.measurements(id, take);
    }

  private:
    JobReader& inner_;
};

class ServiceStore final : public JobStore {
  public:
    ServiceStore(StoreDisk& disk, const Process& service) : disk_(disk), service_(service) {}

    std::vector<std::uint64_t> create_all(std::span<const NewJob> jobs) override {
        return commit([&] { return inner().create_all(jobs); });
    }
    std::uint64_t append_events(std::string_view id, std::span<const api::JobEvent> events,
                                const JobChange& change) override {
        return commit([&] {
            const auto of_worker = [](const api::JobEvent& event) { return event.type == api::EventType::message; };
            const bool lost = disk_.loses_this() && std::ranges::all_of(events, of_worker);
            const auto last = inner().append_events(id, lost ? events.first(0) : events, change);
            if (change.state != nullptr) {
                disk_.note(*change.state);
            }
            return last;
        });
    }
    void drop_metrics(std::string_view id, std::uint64_t sequence) override {
        commit([&] { return inner().drop_metrics(id, sequence), 0; });
    }
    void drop_messages(std::string_view id, std::uint32_t kept) override {
        commit([&] { return inner().drop_messages(id, kept), 0; });
    }
    bool set_metadata(std::string_view id, const std::map<std::string, std::string>& metadata) override {
        return commit([&] { return inner().set_metadata(id, metadata); });
    }
    bool remove_all(std::span<const std::string> ids) override {
        return commit([&] { return inner().remove_all(ids); });
    }
    void try_write() override {
        commit([&] { return inner().try_write(), 0; });
    }
    std::optional<StoredJob> get(std::string_view id) override { return inner().get(id); }
    JobPage list(const JobQuery& query) override { return inner().list(query); }
    EventPage events(std::string_view id, std::uint64_t after, std::uint32_t limit) override {
        return inner().events(id, after, limit);
    }
    EventPage events_before(std::string_view id, std::uint64_t before, std::uint32_t limit) override {
        return inner().events_before(id, before, limit);
    }
    std::vector<api::JobCheckpoint> checkpoints(std::string_view id) override { return inner().checkpoints(id); }
    void measurements(std::string_view id, const std::function<void(const api::JobEvent&)>& take) override {
        inner().measurements(id, take);
    }
    std::optional<StoredJob> find_by_key(std::string_view key, std::string_view not_before) override {
        return inner().find_by_key(key, not_before);
    }
    std::vector<StoredJob> unfinished() override { return inner().unfinished(); }
    void ended(const std::function<void(const api::Job&)>& take) override { inner().ended(take); }
    std::vector<std::pair<api::JobState, std::uint64_t>> counts() override { return inner().counts(); }
    std::unique_ptr<JobReader> open_reader() override { return std::make_unique<SameReader>(disk_.store()); }

  private:
    JobStore& inner() {
        if (!service_.alive()) {
            throw Killed();
        }
        return disk_.store();
    }
    template <class Write>
    std::invoke_result_t<Write> commit(Write write) {
        if (!service_.alive()) {
            throw Killed();
        }
        return disk_.commit(write);
    }

    StoreDisk& disk_;
    const Process& service_;
};

}  // namespace

void StoreDisk::arm(std::uint64_t writes, bool before, std::function<void()> kill) {
    writes_ = writes;
    before_ = before;
    kill_ = std::move(kill);
}

std::uint64_t StoreDisk::received(const std::string& job, std::uint64_t attempt) const {
    const auto known = known_.find(job);
    return known != known_.end() && known->second.attempt == attempt ? known->second.received : 0;
}

bool StoreDisk::is_open(const std::string& job, std::uint64_t attempt) const {
    const auto known = known_.find(job);
    return known != known_.end() && known->second.attempt == attempt && known->second.open;
}

void StoreDisk::note(const StoredJob& job) {
    known_[job.job.id] = {job.job.attempt, job.attempt_received, !job.attempt_token.empty()};
    if (!job.attempt_place.empty()) {
        placed_.insert({job.job.id, job.job.attempt});
    }
}

void StoreDisk::before_commit() {
    if (kill_ && writes_ > 0) {
        --writes_;
    }
    if (kill_ && writes_ == 0 && before_) {
        end_service();
    }
    if (full_) {
        throw ErrorException(io_error("jobs.sqlite: database or disk is full"));
    }
}

void StoreDisk::after_commit() {
    if (kill_ && writes_ == 0) {
        end_service();
    }
}

void StoreDisk::end_service() {
    std::exchange(kill_, nullptr)();
    throw Killed();
}

std::unique_ptr<JobStore> make_service_store(StoreDisk& disk, const Process& service) {
    return std::make_unique<ServiceStore>(disk, service);
}

}  // namespace distilld::test
