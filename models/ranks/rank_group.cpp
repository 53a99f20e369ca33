#include "models/ranks/rank_group.hpp"

#ifdef DISTILLD_WITH_GLOO

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "models/ranks/meeting_point.hpp"
#include "pipeline/core/ranks/rank_watch.hpp"

namespace distilld::models {

namespace {

using c10d::ProcessGroupGloo;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// What ranks must agree on before they exchange anything else.
constexpr const char* kProtocol = "distilld ranks 1";
/// The store's key by which another rank asks rank 0 to end the run.
constexpr const char* kStop = "stop";
/// The first verdict about a loss.
constexpr const char* kVerdict = "verdict";
constexpr milliseconds kPoll{100};
/// Of a call that waits for another rank: its heartbeats say whether to go on waiting.
constexpr milliseconds kWithoutEnd = std::chrono::hours(24 * 365);

std::string text_of(const std::vector<std::uint8_t>& bytes) {
    return {bytes.begin(), bytes.end()};
}

std::vector<std::uint8_t> bytes_of(const std::string& text) {
    return {text.begin(), text.end()};
}

std::string described(const std::exception& error) {
    const std::string words = error.what();
    return words.substr(0, words.find('\n'));
}

/// The end of gloo's words, as in "[pair.cc:537] Read error [127.0.0.1]:28565: Connection reset by peer. This is …".
std::string described_loss(const std::exception& error) {
    std::string words = described(error);
    words = words.substr(0, words.find(". "));
    const std::size_t colon = words.rfind(": ");
    return colon == std::string::npos ? std::string() : words.substr(colon);
}

class GlooGroup final : public RankGroup {
  public:
    GlooGroup(RankPlace place, std::function<void(const RankLost&)> on_lost, RankPatience patience,
              std::function<void()> on_stop)
        : place_(std::move(place)), on_lost_(std::move(on_lost)), on_stop_(std::move(on_stop)), patience_(patience) {}
    GlooGroup(const GlooGroup&) = delete;
    GlooGroup& operator=(const GlooGroup&) = delete;
    ~GlooGroup() override {
        leave();
        stop_watching();
    }

    Result<void> join(const std::function<bool()>& cancelled) {
        try {
            const Clock::time_point deadline = Clock::now() + patience_.join;
            store_ = open_store(place_, place_.rank == 0 && !place_.hosted, deadline, cancelled);
            // Connections take long where names do: none is made once the others wait for heartbeats.
            watched_ = store_ ? open_store(place_, false, deadline, cancelled) : nullptr;
            if (!watched_) {
                return stopped();
            }
            if (Result<void> met = meet(deadline, cancelled); !met) {
                return met;
            }
            auto options = ProcessGroupGloo::Options::create(patience_.join);
            options->devices.push_back(device_for(place_));
            const std::set<int> before = connected_sockets();
            group_ = c10::make_intrusive<ProcessGroupGloo>(store_, static_cast<int>(place_.rank),
                                                           static_cast<int>(place_.count), std::move(options));
            group_->setTimeout(kWithoutEnd);
            limit_silence(before, patience_.link);
            limit_waits(place_);
            watching_ = std::jthread([this] { watch(); });
            return {};
        } catch (const std::exception& error) {
            return Error{ErrorKind::io, name_of(place_.rank) + " cannot join at " + place_.host + ":" +
                                            std::to_string(place_.port) + ": " + described(error)};
        }
    }

    [[nodiscard]] std::uint32_t rank() const noexcept override { return place_.rank; }
    [[nodiscard]] std::uint32_t count() const noexcept override { return place_.count; }

    [[nodiscard]] std::unique_ptr<Transfer> begin_send(std::span<const std::byte> bytes, std::uint32_t to) override {
        // gloo only reads them.
        return begin({const_cast<std::byte*>(bytes.data()), bytes.size()}, to, &ProcessGroupGloo::send);
    }

    [[nodiscard]] std::unique_ptr<Transfer> begin_receive(std::span<std::byte> bytes, std::uint32_t from) override {
        return begin(bytes, from, &ProcessGroupGloo::recv);
    }

    void abandon() noexcept override {
        const std::lock_guard lock(mutex_);
        if (!lost_) {
            lost_.emplace(place_.rank, true, name_of(place_.rank) + " has left");
        }
        abort_transfers();
    }

    void fail(const std::string& why) noexcept override {
        std::string how;
        {
            const std::lock_guard lock(mutex_);
            how = end_of_lost_;
        }
        end(how.empty() ? RankWatch::end_by_failure(why) : how);
    }

    void ask_to_stop() noexcept override {
        {
            const std::lock_guard lock(mutex_);
            asks_ = true;
        }
        changed_.notify_all();
    }

    void leave() noexcept override {
        end(RankWatch::end_of_run());
        if (place_.rank != 0 || place_.hosted || !store_) {
            return;
        }
        // The others learn from our store how we have ended, and of the loss of a rank. That rank may look, too:
        // perhaps only a link to it is broken.
        const std::optional<std::uint32_t> gone = lost_rank();
        const auto now = Clock::now();
        try {
            for (std::uint32_t other = 1; other < place_.count; ++other) {
                const auto deadline = now + (gone ? patience_.heartbeat * (other == gone ? 1 : 3) : patience_.leave);
                while (!store_->check({key("end", other)}) && Clock::now() < deadline) {
                    std::this_thread::sleep_for(kPoll);
                }
            }
        } catch (const std::exception&) {  // nobody can be asked
        }
    }

  private:
    static Error stopped() { return {ErrorKind::cancelled, "stopped on request"}; }
    static std::string key(const char* name, std::uint32_t rank) { return name + ("/" + std::to_string(rank)); }

    [[nodiscard]] std::string name_of(std::uint32_t rank) const { return name_of_rank(rank, place_.count); }

    /// Waits for all ranks, and refuses those of another kind.
    Result<void> meet(Clock::time_point deadline, const std::function<bool()>& cancelled) {
        const std::string hello = std::string(kProtocol) + ", " + std::to_string(place_.count) + " ranks";
        if (store_->add(key("joined", place_.rank), 1) > 1) {
            return invalid_input(name_of(place_.rank) +
                                 " has joined before: two processes have this rank, or an earlier run still ends");
        }
        store_->set(key("beat", place_.rank), bytes_of("0"));
        store_->set(key("hello", place_.rank), bytes_of(hello));
        for (std::uint32_t other = 0; other < place_.count; ++other) {
            while (!store_->check({key("hello", other)})) {
                if (Clock::now() >= deadline) {
                    return Error{ErrorKind::io, missing()};
                }
                if (cancelled && cancelled()) {
                    return stopped();
                }
                std::this_thread::sleep_for(kPoll);
            }
            if (const std::string theirs = text_of(store_->get(key("hello", other))); theirs != hello) {
                return invalid_input(name_of(other) + " says \"" + theirs.substr(0, 80) + "\", but " +
                                     name_of(place_.rank) + " \"" + hello +
                                     "\": start the same version of distilld with the same number of ranks");
            }
        }
        return {};
    }

    [[nodiscard]] std::string missing() const {
        std::string names;
        for (std::uint32_t other = 0; other < place_.count; ++other) {
            if (!store_->check({key("hello", other)})) {
                names += (names.empty() ? "" : ", ") + std::to_string(other);
            }
        }
        return "of " + std::to_string(place_.count) + " ranks, these have not come within " +
               std::to_string(std::chrono::duration_cast<std::chrono::seconds>(patience_.join).count()) +
               " s: " + names;
    }

    void end(const std::string& how) noexcept {
        if (!store_ || ended_.exchange(true)) {
            return;
        }
        try {
            store_->set(key("end", place_.rank), bytes_of(how.substr(0, 4096)));
        } catch (const std::exception&) {  // nobody can be told
        }
    }

    using WorkPtr = c10::intrusive_ptr<c10d::Work>;
    using Begin = WorkPtr (ProcessGroupGloo::*)(std::vector<at::Tensor>&, int, int);

    class GlooTransfer final : public Transfer {
      public:
        GlooTransfer(GlooGroup& group, std::uint32_t peer, WorkPtr work)
            : group_(group), peer_(peer), work_(std::move(work)) {}
        ~GlooTransfer() override { group_.forget(work_); }
        GlooTransfer(const GlooTransfer&) = delete;
        GlooTransfer& operator=(const GlooTransfer&) = delete;
        void wait() override { group_.wait(peer_, work_); }

      private:
        GlooGroup& group_;
        std::uint32_t peer_;
        WorkPtr work_;  // null: nothing to wait for
    };

    std::unique_ptr<Transfer> begin(std::span<std::byte> bytes, std::uint32_t peer, Begin start) {
        WorkPtr work;
        if (!bytes.empty()) {
            std::vector<at::Tensor> tensors{
                at::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, at::kByte)};
            std::string why;
            {
                const std::lock_guard lock(mutex_);
                if (lost_) {
                    throw RankLost(*lost_);
                }
                try {
                    work = (group_.get()->*start)(tensors, static_cast<int>(peer), 0);
                    transfers_.insert(work);
                } catch (const std::exception& error) {
                    why = described_loss(error);
                }
            }
            if (!work) {
                throw_loss(peer, why);
            }
        }
        return std::make_unique<GlooTransfer>(*this, peer, std::move(work));
    }

    void wait(std::uint32_t peer, const WorkPtr& work) {
        if (!work) {
            return;
        }
        std::string why;
        try {
            if (work->wait(kWithoutEnd)) {
                return;
            }
        } catch (const std::exception& error) {
            why = described_loss(error);
        }
        throw_loss(peer, why);
    }

    [[noreturn]] void throw_loss(std::uint32_t peer, const std::string& why) {
        const std::string how = "its connection to " + name_of(place_.rank) + " has ended" + why;
        std::unique_lock lock(mutex_);
        suspicion_.emplace(peer, how);
        changed_.notify_all();
        // The watching thread looks at once, and once more.
        changed_.wait_for(lock, patience_.heartbeat * 2 + kPoll * 10, [this] { return lost_.has_value(); });
        if (!lost_) {
            lost_.emplace(peer, false, name_of(peer) + " is lost: " + how);
        }
        throw RankLost(*lost_);
    }

    void forget(const WorkPtr& work) {
        const std::lock_guard lock(mutex_);
        transfers_.erase(work);
    }

    /// With the mutex.
    void abort_transfers() {
        for (const WorkPtr& work : transfers_) {
            work->abort();
        }
    }

    void watch() {
        RankWatch watch(place_.rank, place_.count, static_cast<std::uint32_t>(patience_.silence / patience_.heartbeat));
        std::uint64_t beats = 0;
        while (wait_for_next_beat()) {
            if (const auto suspicion = take_suspicion()) {
                watch.suspect(suspicion->first, suspicion->second);
            }
            std::optional<RankVerdict> found;
            std::string how;
            try {
                watched_->set(key("beat", place_.rank), bytes_of(std::to_string(++beats)));
                if (asks_.exchange(false)) {
                    watched_->set(kStop, bytes_of("asked"));
                }
                if (place_.rank == 0 && on_stop_ && watched_->check({kStop})) {
                    std::exchange(on_stop_, {})();
                }
                found = watch.look(signs());
                if (found && !found->left) {
                    found = watch.read(published(RankWatch::write(*found)));
                }
                how = found ? RankWatch::end_by_verdict(*found) : "";
            } catch (const std::exception& error) {
                // If a verdict could not be published, it is this rank that knows.
                if (!found) {
                    found = watch.no_store(place_.hosted,
                                           place_.host + ":" + std::to_string(place_.port) + ": " + described(error));
                }
                how = RankWatch::end_by_failure(found->words);  // perhaps it is this rank that is cut off
            }
            if (found && !ended_) {
                report({found->rank, found->left, found->words}, found->left ? "" : how);
                return;
            }
        }
    }

    RankSigns signs() {
        RankSigns signs;
        signs.beats.resize(place_.count);
        signs.ends.resize(place_.count);
        if (watched_->check({kVerdict})) {
            signs.verdict = text_of(watched_->get(kVerdict));
        }
        for (std::uint32_t other = 0; other < place_.count; ++other) {
            if (other == place_.rank) {
                continue;
            }
            if (watched_->check({key("end", other)})) {
                signs.ends[other] = text_of(watched_->get(key("end", other)));
            } else {
                signs.beats[other] = text_of(watched_->get(key("beat", other)));
            }
        }
        return signs;
    }

    /// The verdict of all ranks: this one, unless another came first.
    std::string published(const std::string& verdict) {
        return text_of(watched_->compareSet(kVerdict, {}, bytes_of(verdict)));
    }

    void report(const RankLost& lost, const std::string& how) {
        {
            const std::lock_guard lock(mutex_);
            lost_ = lost;
            end_of_lost_ = how;
            abort_transfers();
        }
        changed_.notify_all();
        if (on_lost_) {
            on_lost_(lost);
        }
    }

    /// At once if another rank is suspected or the run should stop.
    bool wait_for_next_beat() {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, patience_.heartbeat, [this] { return stopped_ || asks_ || suspicion_; });
        return !stopped_;
    }

    std::optional<std::pair<std::uint32_t, std::string>> take_suspicion() {
        const std::lock_guard lock(mutex_);
        return std::exchange(suspicion_, std::nullopt);
    }

    void stop_watching() {
        {
            const std::lock_guard lock(mutex_);
            stopped_ = true;
        }
        changed_.notify_all();
    }

    /// nullopt: none is lost.
    [[nodiscard]] std::optional<std::uint32_t> lost_rank() {
        const std::lock_guard lock(mutex_);
        return lost_ && !lost_->left() ? std::optional(lost_->rank()) : std::nullopt;
    }

    RankPlace place_;
    std::function<void(const RankLost&)> on_lost_;
    std::function<void()> on_stop_;  // empty: it was called, or nobody waits for it
    RankPatience patience_;
    c10::intrusive_ptr<c10d::Store> store_;
    c10::intrusive_ptr<c10d::Store> watched_;  // the same over a connection of its own, which serves one call at a time
    c10::intrusive_ptr<ProcessGroupGloo> group_;
    std::atomic<bool> ended_ = false;
    std::atomic<bool> asks_ = false;
    std::mutex mutex_;  // of everything below
    std::condition_variable changed_;
    std::set<WorkPtr> transfers_;  // that are not forgotten
    std::optional<RankLost> lost_;
    std::string end_of_lost_;                                         // what to tell the others about it
    std::optional<std::pair<std::uint32_t, std::string>> suspicion_;  // a rank whose transfer has broken, and why
    bool stopped_ = false;
    std::jthread watching_;
};

}  // namespace

Result<std::unique_ptr<RankGroup>> RankGroup::join(const RankPlace& place, std::function<void(const RankLost&)> on_lost,
                                                   const std::function<bool()>& cancelled, RankPatience patience,
                                                   std::function<void()> on_stop) {
    auto group = std::make_unique<GlooGroup>(place, std::move(on_lost), patience, std::move(on_stop));
    if (Result<void> joined = group->join(cancelled); !joined) {
        group->fail(joined.error().message);
        return joined.error();
    }
    return std::unique_ptr<RankGroup>(std::move(group));
}

}  // namespace distilld::models

#else

namespace distilld::models {

Result<std::unique_ptr<RankGroup>> RankGroup::join(const RankPlace&, std::function<void(const RankLost&)>,
                                                   const std::function<bool()>&, RankPatience, std::function<void()>) {
    return invalid_input(
        "this distilld was built without gloo, so it cannot train on several ranks: install gloo's "
        "headers (Debian: libgloo-dev) and build it again");
}

}  // namespace distilld::models

#endif
