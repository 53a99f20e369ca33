#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/random.hpp"
#include "tests/simulation/simulated_rank.hpp"

/// What surrounds the ranks of run_rank_world(): the clock, the network, the store, the supervisor and the faults.
namespace distilld::test {

class World {
  public:
    explicit World(const RankWorldOptions& options) : options_(options), random_(options.seed) {}

    RankWorldResult run() {
        start_attempt();
        draw_faults();
        while (!done_ && !events_.empty() && now_ < kHorizon && result_.violations.empty()) {
            Event event = events_.top();
            events_.pop();
            now_ = event.at;
            event.work();
        }
        if (!done_ && result_.violations.empty()) {
            violate("no end: " + std::string(events_.empty() ? "nobody acts any more" : "an hour has passed"));
        }
        result_.virtual_seconds = static_cast<double>(now_) / 1000;
        return result_;
    }

    void at(Millis delay, std::function<void()> work) { events_.push({now_ + delay, order_++, std::move(work)}); }
    [[nodiscard]] Millis now() const { return now_; }
    [[nodiscard]] std::uint64_t draw(std::uint64_t below) { return random_.next() % below; }
    [[nodiscard]] const RankWorldOptions& options() const { return options_; }
    void tell(const std::string& what) const {
        if (options_.trace) {
            std::printf("%9.3f %s\n", static_cast<double>(now_) / 1000, what.c_str());
        }
    }
    void violate(const std::string& what) {
        tell("VIOLATION " + what);
        result_.violations.push_back(std::to_string(now_) + " ms: " + what);
    }

    [[nodiscard]] Rank& rank(std::uint32_t number) { return *ranks_.at(number); }
    [[nodiscard]] bool is_on_the_way(std::uint32_t from, std::uint32_t to) { return !wire_[{from, to}].empty(); }
    [[nodiscard]] std::uint32_t attempt() const { return attempt_; }
    [[nodiscard]] bool reaches(std::uint32_t one, std::uint32_t other) const {
        return one == other || (!cut_.contains(one) && !cut_.contains(other));
    }

    /// Whether packets pass between the two; otherwise they may both reach the store.
    [[nodiscard]] bool is_linked(std::uint32_t one, std::uint32_t other) const {
        return reaches(one, other) && !cut_links_.contains(std::minmax(one, other));
    }

    [[nodiscard]] bool reaches_store(std::uint32_t number) const {
        return options_.hosted ? !cut_.contains(number) : reaches(number, 0);
    }

    /// In order, even across a partition, as TCP does; dropped if the receiver is of another attempt.
    void send(std::uint32_t from, std::uint32_t to, float value) {
        const std::uint32_t attempt = attempt_;
        wire_[{from, to}].push_back(value);
        deliver_later(from, to, attempt);
    }

    /// A call of the store: runs `call` there, and `answer` here; without an answer in time, `timed_out`.
    void call_store(const std::shared_ptr<Rank>& caller, std::function<void(Store&)> call, std::function<void()> answer,
                    std::function<void()> timed_out) {
        const std::uint32_t attempt = attempt_;
        auto answered = std::make_shared<bool>(false);
        const auto reply = [this, caller, answered, answer = std::move(answer)] {
            if (!reaches_store(caller->number())) {
                return;
            }
            caller->later(delay(), [answered, answer] {
                if (!std::exchange(*answered, true)) {
                    answer();
                }
            });
        };
        const auto arrive = [this, caller, attempt, call = std::move(call), reply] {
            if (attempt != attempt_ || !reaches_store(caller->number())) {
                return;
            }
            if (options_.hosted) {
                call(store_);
                reply();
            } else if (rank(0).alive()) {
                rank(0).later(0, [this, call, reply] {
                    call(store_);
                    reply();
                });
            }
        };
        at(delay(), arrive);
        if (draw(20) == 0) {
            at(delay() + 5, arrive);  // a retry of a call that had arrived
        }
        caller->later(kStoreTimeout, [answered, timed_out = std::move(timed_out)] {
            if (!std::exchange(*answered, true)) {
                timed_out();
            }
        });
    }

    void checkpoint(const std::shared_ptr<Rank>& writer, std::uint32_t step, float weight) {
        if (options_.defect == RankWorldOptions::Defect::commits_halves) {
            newest_ = {step, weight / 2};
        }
        writer->later(50 + static_cast<Millis>(draw(400)), [this, step, weight] {
            if (step > newest_.step || options_.defect == RankWorldOptions::Defect::commits_halves) {
                newest_ = {step, weight};
                tell("checkpoint of step " + std::to_string(step));
            }
        });
    }

    /// Of a process, by itself or by a signal.
    void on_exit(Rank& rank, bool killed) {
        if (rank.attempt() != attempt_) {
            return;
        }
        tell("rank " + std::to_string(rank.number()) + (killed ? " is killed" : " has ended"));
        for (const auto& other : ranks_) {
            if (other->number() != rank.number()) {
                break_later(rank.number(), other->number());
            }
        }
        if (!ending_) {
            ending_ = true;
            const std::uint32_t attempt = attempt_;
            at(kGrace, [this, attempt] {
                if (attempt == attempt_) {
                    for (const auto& one : ranks_) {
                        one->kill();
                    }
                }
            });
        }
        if (std::ranges::none_of(ranks_, [](const auto& one) { return one->alive(); })) {
            at(500, [this, attempt = attempt_] {
                if (attempt == attempt_) {
                    end_attempt();
                }
            });
        }
    }

    void on_verdict(const Rank& rank, const RankVerdict& verdict) {
        tell("rank " + std::to_string(rank.number()) + " says: " + verdict.words);
        if (verdict.left) {
            return;
        }
        ++result_.verdicts;
        // Whoever was cut off or stopped itself may see only that the store does not answer.
        bool names_one = faulty_.contains(verdict.rank) || disturbed_.contains(rank.number());
        for (const std::uint32_t faulty : faulty_) {
            names_one = names_one || verdict.words.find("rank " + std::to_string(faulty) + " of") != std::string::npos;
        }
        if (!names_one) {
            violate("rank " + std::to_string(rank.number()) + " says \"" + verdict.words +
                    "\", but nothing has happened to that rank");
        }
    }

  private:
    struct Event {
        Millis at;
        std::uint64_t order;
        std::function<void()> work;
        bool operator<(const Event& other) const { return std::pair(at, order) > std::pair(other.at, other.order); }
    };

    [[nodiscard]] Millis delay() { return 1 + static_cast<Millis>(draw(draw(10) == 0 ? 300 : 10)); }

    void deliver_later(std::uint32_t from, std::uint32_t to, std::uint32_t attempt) {
        at(delay(), [this, from, to, attempt] {
            if (attempt != attempt_) {
                return;
            }
            if (!is_linked(from, to)) {
                at(200, [this, from, to, attempt] { deliver_later(from, to, attempt); });
                return;
            }
            rank(to).later(0, [this, from, to] {
                std::deque<float>& wire = wire_[{from, to}];
                if (!wire.empty()) {
                    const float value = wire.front();
                    wire.pop_front();
                    rank(to).receive(from, value);
                }
            });
        });
    }

    /// The kernel of the dead process resets its connections.
    void break_later(std::uint32_t dead, std::uint32_t other) {
        at(delay(), [this, dead, other, attempt = attempt_] {
            if (attempt != attempt_) {
                return;
            }
            if (!is_linked(dead, other)) {
                at(200, [this, dead, other, attempt] {
                    if (attempt == attempt_) {
                        break_later(dead, other);
                    }
                });
                return;
            }
            rank(other).later(0, [this, dead, other] { rank(other).on_broken(dead); });
        });
    }

    void start_attempt() {
        ++attempt_;
        ++result_.attempts;
        ending_ = false;
        store_ = {};
        wire_.clear();
        faulty_ = cut_;
        disturbed_ = cut_;
        for (const auto& [one, other] : cut_links_) {
            faulty_.insert({one, other});
            break_if_still_cut({one, other});
        }
        ranks_.clear();
        tell("attempt " + std::to_string(attempt_) + " from step " + std::to_string(newest_.step));
        for (std::uint32_t number = 0; number < options_.ranks; ++number) {
            ranks_.push_back(std::make_shared<Rank>(*this, number, attempt_, newest_));
        }
        for (const auto& one : ranks_) {
            one->start();
        }
    }

    void end_attempt() {
        if (ranks_.front()->finished()) {
            const float expected = reference(options_);
            for (const auto& one : ranks_) {
                if (one->finished() && one->weight() != expected) {
                    violate("rank " + std::to_string(one->number()) + " ends with another weight than one rank alone");
                }
            }
            done_ = true;
            return;
        }
        start_attempt();
    }

    void draw_faults() {
        Millis when = 0;
        for (std::uint32_t i = 0; i < options_.faults; ++i) {
            when += 200 + static_cast<Millis>(draw(25'000));
            at(when, [this] { fault(); });
        }
    }

    void fault() {
        const auto number = static_cast<std::uint32_t>(draw(options_.ranks));
        Rank& victim = rank(number);
        if (!victim.alive() || victim.stopped() || cut_.contains(number) || done_) {
            return;
        }
        faulty_.insert(number);
        const Millis pause = 500 + static_cast<Millis>(draw(60'000));
        switch (draw(4)) {
            case 0:
                victim.kill();
                break;
            case 1:
                tell("rank " + std::to_string(number) + " is stopped for " + std::to_string(pause) + " ms");
                victim.stop();
                at(pause, [this, number, one = ranks_.at(number)] {
                    one->go_on();
                    touched_[number] = now_;
                });
                break;
            case 2:
                cut_link(number, (number + 1 + static_cast<std::uint32_t>(draw(options_.ranks - 1))) % options_.ranks,
                         pause);
                return;
            default:
                tell("rank " + std::to_string(number) + " is cut off for " + std::to_string(pause) + " ms");
                cut_.insert(number);
                at(pause, [this, number] {
                    cut_.erase(number);
                    touched_[number] = now_;
                });
                break;
        }
        disturbed_.insert(number);
        touched_[number] = now_;
        if (!victim.alive() || pause > kNoticed) {  // a short pause may pass unnoticed
            watch_the_end(number);
        }
    }

    /// The kernels of both ends give up.
    void break_if_still_cut(const std::pair<std::uint32_t, std::uint32_t>& link) {
        at(kLinkPatience, [this, link, attempt = attempt_] {
            if (attempt != attempt_ || !cut_links_.contains(link)) {
                return;
            }
            give_up(link.first, link.second);
            give_up(link.second, link.first);
        });
    }

    void give_up(std::uint32_t number, std::uint32_t peer) {
        wire_[{peer, number}].clear();
        rank(number).later(0, [this, number, peer] { rank(number).on_broken(peer); });
    }

    void cut_link(std::uint32_t one, std::uint32_t other, Millis pause) {
        faulty_.insert(other);
        const std::pair<std::uint32_t, std::uint32_t> link = std::minmax(one, other);
        tell("ranks " + std::to_string(one) + " and " + std::to_string(other) + " do not reach each other for " +
             std::to_string(pause) + " ms");
        cut_links_.insert(link);
        at(pause, [this, link] { cut_links_.erase(link); });
        break_if_still_cut(link);
        if (pause > kNoticed) {
            watch_the_end(options_.ranks);
        }
    }

    /// After a loss, whoever can act must end by itself. `lost`: the number of ranks for a link.
    void watch_the_end(std::uint32_t lost) {
        at(kNoticed, [this, lost, attempt = attempt_, since = now_] {
            const auto is_later = [since](const auto& touched) { return touched.second >= since; };
            if (attempt != attempt_ || done_ || (lost == options_.ranks && std::ranges::any_of(touched_, is_later))) {
                return;
            }
            for (const auto& one : ranks_) {
                const auto touched = touched_.find(one->number());
                const bool able = one->number() != lost && !one->stopped() && !cut_.contains(one->number()) &&
                                  (touched == touched_.end() || touched->second < since);
                if (able && one->alive() && !one->finished()) {
                    violate("rank " + std::to_string(one->number()) + " still runs 30 s after the loss of " +
                            (lost < options_.ranks ? "rank " + std::to_string(lost) : "a link"));
                }
            }
        });
    }

    RankWorldOptions options_;
    SplitMix64 random_;
    Millis now_ = 0;
    std::uint64_t order_ = 0;
    std::priority_queue<Event> events_;
    std::uint32_t attempt_ = 0;
    std::vector<std::shared_ptr<Rank>> ranks_;
    Store store_;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::deque<float>> wire_;
    std::set<std::uint32_t> cut_;
    std::set<std::pair<std::uint32_t, std::uint32_t>> cut_links_;
    std::set<std::uint32_t> faulty_;           ///< in this attempt
    std::set<std::uint32_t> disturbed_;        ///< of these, by more than a broken link
    std::map<std::uint32_t, Millis> touched_;  ///< when a rank was last disturbed
    Checkpoint newest_;
    bool ending_ = false;
    bool done_ = false;
    RankWorldResult result_;
};

}  // namespace distilld::test
