#include "tests/simulation/simulated_rank.hpp"

#include <cmath>
#include <utility>

#include "base/random.hpp"
#include "models/network/grouped_sum.hpp"
#include "tests/simulation/simulated_world.hpp"

namespace distilld::test {

namespace {

void add_number(float& total, const float& more) {
    total += more;
}
using Sum = models::GroupedSum<float, add_number>;

/// A number of a gradient group in a step. Their sizes differ so much that the order of addition shows.
float addend(std::uint64_t seed, std::uint32_t step, std::uint32_t group) {
    SplitMix64 random(seed ^ (std::uint64_t{step} << 20U) ^ group);
    const double size = std::pow(10.0, static_cast<double>(random.next() % 9) - 4.0);
    return static_cast<float>(size * (static_cast<double>(random.next() % 20001) - 10000) / 7000);
}

std::vector<bool> present_in(std::uint64_t seed, std::uint32_t step, std::uint32_t groups) {
    SplitMix64 random(seed * 31 + step);
    std::vector<bool> present(groups);
    for (std::uint32_t group = 0; group < groups; ++group) {
        present[group] = random.next() % 5 != 0;
    }
    return present;
}

float updated(float weight, float gradient) {
    return weight * 0.9F + gradient;
}

}  // namespace

float reference(const RankWorldOptions& options) {
    float weight = 1;
    for (std::uint32_t step = 0; step < options.steps; ++step) {
        const std::vector<bool> present = present_in(options.seed, step, options.groups);
        Sum sum;
        for (std::uint32_t group = 0; group < options.groups; ++group) {
            if (present[group]) {
                sum.of(group) += addend(options.seed, step, group);
            }
        }
        weight = updated(weight, sum.take());
    }
    return weight;
}

Rank::Rank(World& world, std::uint32_t number, std::uint32_t attempt, const Checkpoint& from)
    : world_(world),
      number_(number),
      attempt_(attempt),
      step_(from.step),
      weight_(from.weight),
      watch_(number, world.options().ranks,
             world.options().defect == RankWorldOptions::Defect::ignores_silence ? 1'000'000 : kMaxSilentLooks) {}

void Rank::start() {
    later(static_cast<Millis>(world_.draw(1000)), [this] { look_later(); });
    later(static_cast<Millis>(world_.draw(1000)), [this] { train(); });
}

void Rank::later(Millis delay, std::function<void()> work) {
    world_.at(delay, [self = shared_from_this(), work = std::move(work)] {
        if (self->alive_ && self->stopped_) {
            self->postponed_.push_back(work);
        } else if (self->alive_) {
            work();
        }
    });
}

void Rank::kill() {
    if (std::exchange(alive_, false)) {
        world_.on_exit(*this, true);
    }
}

void Rank::exit() {
    if (std::exchange(alive_, false)) {
        world_.on_exit(*this, false);
    }
}

void Rank::stop() {
    stopped_ = true;
}

void Rank::go_on() {
    if (std::exchange(stopped_, false)) {
        for (auto& work : std::exchange(postponed_, {})) {
            later(0, std::move(work));
        }
    }
}

void Rank::train() {
    if (ended_) {
        return;
    }
    if (step_ == world_.options().steps) {
        finished_ = true;
        end(RankWatch::end_of_run());
        return;
    }
    later(20 + static_cast<Millis>(world_.draw(600)), [this] {
        const RankWorldOptions& options = world_.options();
        const std::vector<bool> present = present_in(options.seed, step_, options.groups);
        const GroupRange range = groups_of_rank(options.groups, number_, options.ranks);
        Sum sum(range);
        for (std::uint32_t group = 0; group < options.groups; ++group) {
            if (present[group] && group >= range.begin && group < range.end) {
                sum.of(group) += addend(options.seed, step_, group);
            }
        }
        held_ = sum.take_nodes();
        plan_ = plan_sum(present, options.ranks, step_ % options.ranks);
        at_ = 0;
        exchanging_ = true;
        go_through_plan();
    });
}

/// As far as what has arrived allows.
void Rank::go_through_plan() {
    if (!exchanging_ || ended_) {
        return;
    }
    if (plan_.empty) {
        finish_step(0);
        return;
    }
    const auto taken = [this](std::uint32_t from) -> std::optional<float> {
        if (arrived_[from].empty()) {
            if (broken_.contains(from) && !world_.is_on_the_way(from, number_)) {
                watch_.suspect(from,
                               "its connection to " + name_of_rank(number_, world_.options().ranks) + " has ended");
            }
            return std::nullopt;
        }
        const float value = arrived_[from].front();
        arrived_[from].pop_front();
        return value;
    };
    for (; at_ < plan_.steps.size(); ++at_) {
        const SumStep& step = plan_.steps[at_];
        if (step.to == number_ && step.from == number_) {
            held_.at(step.node) += held_.at(step.more);
        } else if (step.to == number_) {
            const std::optional<float> more = taken(step.from);
            if (!more) {
                return;
            }
            if (world_.options().defect == RankWorldOptions::Defect::adds_in_order_of_arrival) {
                held_.at(step.node) += *more * (world_.draw(4) == 0 ? 1.0001F : 1);
            } else {
                held_.at(step.node) += *more;
            }
        } else if (step.from == number_) {
            world_.send(number_, step.to, held_.at(step.more));
        }
    }
    if (plan_.root == number_) {
        const float total = total_of(plan_, held_);
        for (std::uint32_t other = 0; other < world_.options().ranks; ++other) {
            if (other != number_) {
                world_.send(number_, other, total);
            }
        }
        finish_step(total);
    } else if (const std::optional<float> total = taken(plan_.root)) {
        finish_step(*total);
    }
}

void Rank::finish_step(float total) {
    exchanging_ = false;
    weight_ = updated(weight_, total);
    ++step_;
    if (number_ == 0 && (step_ % kStepsPerCheckpoint == 0 || step_ == world_.options().steps)) {
        world_.checkpoint(shared_from_this(), step_, weight_);
    }
    train();
}

void Rank::receive(std::uint32_t from, float value) {
    arrived_[from].push_back(value);
    go_through_plan();
}

void Rank::on_broken(std::uint32_t peer) {
    broken_.insert(peer);
    go_through_plan();
}

void Rank::look_later() {
    later(kHeartbeat, [this] { look(); });
}

void Rank::look() {
    if (ended_) {
        return;
    }
    auto signs = std::make_shared<RankSigns>();
    const auto call = [this, signs, beat = std::to_string(++beats_)](Store& store) {
        const std::uint32_t count = world_.options().ranks;
        store.beats[number_] = beat;
        signs->beats.assign(count, {});
        signs->ends.assign(count, std::nullopt);
        for (std::uint32_t other = 0; other < count; ++other) {
            signs->beats[other] = store.beats[other];
            if (const auto end = store.ends.find(other); end != store.ends.end()) {
                signs->ends[other] = end->second;
            }
        }
        signs->verdict = store.verdict;
    };
    const auto answer = [this, signs] {
        const std::optional<RankVerdict> found = watch_.look(*signs);
        if (!found) {
            look_later();
            return;
        }
        if (found->left) {
            conclude(*found, RankWatch::end_of_run());
            return;
        }
        auto published = std::make_shared<std::string>();
        world_.call_store(
            shared_from_this(),
            [published, text = RankWatch::write(*found)](Store& store) {
                if (!store.verdict) {
                    store.verdict = text;
                }
                *published = *store.verdict;
            },
            [this, published] {
                const RankVerdict verdict = watch_.read(*published);
                conclude(verdict, RankWatch::end_by_verdict(verdict));
            },
            [this, found] { conclude(*found, RankWatch::end_by_verdict(*found)); });
    };
    world_.call_store(shared_from_this(), call, answer, [this] {
        const RankVerdict verdict = watch_.no_store(world_.options().hosted, "timeout");
        // Perhaps it is this rank that is cut off.
        conclude(verdict, RankWatch::end_by_failure(verdict.words));
    });
}

void Rank::conclude(RankVerdict verdict, const std::string& how) {
    if (ended_) {
        return;
    }
    verdict_ = std::move(verdict);
    world_.on_verdict(*this, *verdict_);
    end(how);
}

void Rank::end(const std::string& how) {
    ended_ = true;
    const auto gone = [this] {
        if (number_ == 0 && !world_.options().hosted &&
            world_.options().defect != RankWorldOptions::Defect::leaves_at_once) {
            wait_for_others(world_.now());
        } else {
            exit();
        }
    };
    world_.call_store(
        shared_from_this(), [this, how](Store& store) { store.ends.emplace(number_, how); }, gone, [this] { exit(); });
}

void Rank::wait_for_others(Millis since) {
    auto missing = std::make_shared<bool>(false);
    const auto again = [this, missing, since] {
        if (*missing) {
            later(100, [this, since] { wait_for_others(since); });
        } else {
            exit();
        }
    };
    world_.call_store(
        shared_from_this(),
        [this, missing, since](Store& store) {
            const bool after_loss = verdict_ && !verdict_->left;
            *missing = false;
            for (std::uint32_t other = 1; other < world_.options().ranks; ++other) {
                const Millis patience = after_loss ? kHeartbeat * (verdict_->rank == other ? 1 : 3) : kLeavePatience;
                *missing = *missing || (world_.now() < since + patience && !store.ends.contains(other));
            }
        },
        again, [this] { exit(); });
}

}  // namespace distilld::test
