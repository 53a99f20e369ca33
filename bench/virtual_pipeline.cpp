#include "bench/virtual_pipeline.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <queue>
#include <unordered_set>
#include <utility>

#include "base/random.hpp"

namespace distilld::bench {

namespace {

struct Event {
    Instant at;
    std::uint64_t order = 0;  // ties: first scheduled first
    enum class Kind { answer, trained, wakeup } kind = Kind::wakeup;
    RequestId request = 0;
    VirtualAnswer answer;
    std::uint64_t micro_batch = 0;

    bool operator>(const Event& other) const { return std::pair(at, order) > std::pair(other.at, other.order); }
};

class Simulation {
  public:
    Simulation(const SchedulerOptions& options, Nanos student, const VirtualTeacher& teacher, AnswerBytes bytes)
        : options_(options), scheduler_(options), student_(student), teacher_(teacher), bytes_(bytes) {}

    VirtualRun run() {
        next_train_ = options_.first;
        scheduler_.on_wanted(now_);
        act();
        while (next_train_ < options_.end || training_) {
            if (events_.empty()) {
                break;
            }
            const Event event = events_.top();
            events_.pop();
            if (event.kind == Event::Kind::wakeup && event.order < latest_wakeup_) {
                continue;
            }
            now_ = event.at;
            if (event.kind == Event::Kind::answer && cancelled_.erase(event.request) == 0) {
                finish(event);
            }
            if (event.kind == Event::Kind::trained) {
                trained(event.micro_batch);
            }
            act();
            if (run_.gave_up) {
                break;
            }
        }
        run_.makespan = now_ - Instant{};
        run_.counters = scheduler_.counters();
        run_.window = scheduler_.window();
        return std::move(run_);
    }

  private:
    void finish(const Event& event) {
        if (event.answer.failure) {
            scheduler_.on_failed(event.request, *event.answer.failure, event.answer.retry_after, now_);
        } else {
            scheduler_.on_completed(event.request, bytes_, now_);
        }
    }

    void trained(std::uint64_t n) {
        training_ = false;
        scheduler_.on_trained(n, now_);
        wanted_at_ = now_;
        scheduler_.on_wanted(now_);
    }

    void act() {
        // Taking a micro-batch frees room in the window, which lets requests go out, so go on until nothing moves.
        for (bool moved = true; moved;) {
            moved = false;
            for (const SchedulerAction& action : scheduler_.poll(now_)) {
                moved = true;
                perform(action);
            }
            if (!training_ && delivered_ > next_train_) {
                moved = true;
                take();
            }
        }
        run_.max_in_flight = std::max(run_.max_in_flight, scheduler_.in_flight());
        if (const std::optional<Instant> at = scheduler_.next_wakeup(now_)) {
            latest_wakeup_ = order_;
            push(Event{*at, 0, Event::Kind::wakeup, 0, {}, 0});
        }
    }

    void perform(const SchedulerAction& action) {
        if (const auto* issue = std::get_if<IssueAction>(&action)) {
            const VirtualAnswer answer = teacher_(*issue, scheduler_.in_flight(), now_);
            issued_ = std::max(issued_, issue->micro_batch + 1);
            run_.max_unreleased = std::max(run_.max_unreleased, static_cast<std::uint32_t>(issued_ - next_train_));
            push(Event{now_ + answer.latency, 0, Event::Kind::answer, issue->request, answer, 0});
        } else if (const auto* cancel = std::get_if<CancelAction>(&action)) {
            cancelled_.insert(cancel->request);
        } else if (const auto* deliver = std::get_if<DeliverAction>(&action)) {
            delivered_ = deliver->micro_batch + 1;
        } else if (const auto* give_up = std::get_if<GiveUpAction>(&action)) {
            run_.gave_up = *give_up;
        }
    }

    void take() {
        const std::uint64_t n = next_train_++;
        run_.waited += now_ - wanted_at_;
        run_.taken.push_back(now_);
        run_.limit.push_back(scheduler_.limit());
        scheduler_.on_taken(n, now_);
        scheduler_.on_released(n, now_);
        training_ = true;
        push(Event{now_ + student_, 0, Event::Kind::trained, 0, {}, n});
    }

    void push(Event event) {
        event.order = order_++;
        events_.push(event);
    }

    SchedulerOptions options_;
    PrefetchScheduler scheduler_;
    Nanos student_;
    const VirtualTeacher& teacher_;
    AnswerBytes bytes_;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
    std::unordered_set<RequestId> cancelled_;
    VirtualRun run_;
    Instant now_;
    Instant wanted_at_;
    std::uint64_t order_ = 0;
    std::uint64_t latest_wakeup_ = 0;
    std::uint64_t issued_ = 0;
    std::uint64_t delivered_ = 0;
    std::uint64_t next_train_ = 0;
    bool training_ = false;
};

}  // namespace

VirtualRun run_virtual(const SchedulerOptions& options, Nanos student, const VirtualTeacher& teacher,
                       AnswerBytes bytes) {
    return Simulation(options, student, teacher, bytes).run();
}

Nanos oracle_makespan(const std::vector<Nanos>& latencies, std::uint32_t concurrency, Nanos student) {
    std::priority_queue<Nanos, std::vector<Nanos>, std::greater<>> free_at;
    for (std::uint32_t i = 0; i < concurrency; ++i) {
        free_at.emplace(0);
    }
    Nanos trained{0};
    for (const Nanos latency : latencies) {
        const Nanos answered = free_at.top() + latency;
        free_at.pop();
        free_at.push(answered);
        trained = std::max(trained, answered) + student;
    }
    return trained;
}

std::vector<Nanos> lognormal_latencies(std::uint64_t count, Nanos mean, double sigma, std::uint64_t seed) {
    std::vector<Nanos> latencies(count);
    SplitMix64 random(seed);
    const double mu = -0.5 * sigma * sigma;  // so that the mean of exp(mu + sigma·z) is 1
    for (Nanos& latency : latencies) {
        // Box–Muller; u in (0, 1].
        const double u = static_cast<double>((random.next() >> 11) + 1) * 0x1.0p-53;
        const double v = random.uniform();
        const double z = std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
        latency = std::max(Nanos(1), scaled(mean, std::exp(mu + sigma * z)));
    }
    return latencies;
}

}  // namespace distilld::bench
