#include "tests/simulation/cluster_faults.hpp"

#include <utility>

#include "tests/simulation/cluster_relay.hpp"

namespace distilld::test {
namespace {

constexpr Millis kBetween = 25'000;
constexpr Millis kLongest = 500'000;  ///< of one fault

}  // namespace

Millis ClusterFaults::plan() {
    Millis when = 0;
    for (std::uint32_t i = 0; i < stage_.options().faults; ++i) {
        when += 200 + static_cast<Millis>(stage_.draw(kBetween));
        stage_.at(when, [victims = victims_, &stage = stage_] { ClusterFaults(stage, victims).happen(); });
    }
    return stage_.now() + when + (stage_.options().faults > 0 ? kLongest : 0);
}

void ClusterFaults::happen() {
    switch (stage_.draw(4)) {
        case 0:
            return of_service();
        case 1:
            return of_node();
        case 2:
            return of_slurm();
        default:
            return of_script();
    }
}

void ClusterFaults::of_service() {
    const auto service = victims_.service();
    if (!service || !service->alive() || service->stopped()) {
        return;
    }
    switch (stage_.draw(6)) {
        case 0:
            service->kill();
            break;
        case 1:
            stage_.tell("the service gets SIGTERM");
            service->terminate();
            break;
        case 2:
            service->stop();
            stage_.at(length(60'000), [service] { service->go_on(); });
            break;
        case 3:
            stage_.tell("the store is full");
            victims_.disk.fill(true);
            stage_.at(length(30'000), [&disk = victims_.disk] { disk.fill(false); });
            break;
        default:
            victims_.disk.arm(1 + stage_.draw(30), stage_.chance(2), [weak = std::weak_ptr(service)] {
                if (const auto found = weak.lock()) {
                    found->kill();
                }
            });
    }
}

void ClusterFaults::of_node() {
    const auto node = static_cast<std::uint32_t>(stage_.draw(stage_.options().nodes));
    const Millis lasts = length(stage_.chance(2) ? kLongest : 60'000);
    switch (stage_.draw(5)) {
        case 0:
            victims_.network.cut(node, lasts);
            break;
        case 1:
            victims_.network.break_silently(node);
            break;
        case 2:
            victims_.slurm.crash(node, lasts);
            victims_.network.cut(node, lasts);
            break;
        default:
            victims_.network.cut(node, lasts);
            victims_.slurm.cut(node, lasts);
    }
}

void ClusterFaults::of_slurm() {
    const auto node = static_cast<std::uint32_t>(stage_.draw(stage_.options().nodes));
    switch (stage_.draw(5)) {
        case 0:
            victims_.slurm.go_down(length(120'000));
            break;
        case 1:
            victims_.slurm.be_slow(length(90'000));
            break;
        case 2:
            victims_.slurm.preempt(node);
            break;
        case 3:
            if (const auto script = victims_.slurm.running_script(); script && stage_.chance(3)) {
                victims_.slurm.cancel_outside("distilld-" + script->name());
            }
            break;
        default:
            victims_.slurm.lose_answers(1 + static_cast<std::uint32_t>(stage_.draw(3)));
    }
}

void ClusterFaults::of_script() {
    const auto script = victims_.slurm.running_script();
    if (!script || script->stopped()) {
        return;
    }
    stage_.disturb(script->name());
    const auto training = static_cast<RelayProcess&>(*script).training();
    const Millis lasts = length(stage_.chance(3) ? kLongest : 60'000);
    switch (stage_.draw(4)) {
        case 0:
            script->kill();
            break;
        case 1:
            script->stop();
            victims_.network.watch_stopped(script);
            stage_.at(lasts, [script] { script->go_on(); });
            break;
        case 2:
            if (training) {
                training->stop(lasts);
            }
            break;
        default:
            script->post([training] {
                if (training) {
                    training->die(kWorkerKilled, "the worker was killed by signal 11", 139);
                }
            });
    }
}

}  // namespace distilld::test
