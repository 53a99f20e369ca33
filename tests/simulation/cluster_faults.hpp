#pragma once

#include <cstdint>
#include <functional>

#include "tests/simulation/cluster_network.hpp"
#include "tests/simulation/cluster_service.hpp"
#include "tests/simulation/cluster_slurm.hpp"
#include "tests/simulation/cluster_store.hpp"
#include "tests/simulation/cluster_user.hpp"

namespace distilld::test {

/// What goes wrong in run_cluster(), and when.
class ClusterFaults {
  public:
    struct Victims {
        StoreDisk& disk;
        Network& network;
        SimulatedSlurm& slurm;
        FindService service;
    };
    ClusterFaults(Stage& stage, Victims victims) : stage_(stage), victims_(std::move(victims)) {}

    /// Returns when all faults are over.
    Millis plan();

  private:
    void happen();
    void of_service();
    void of_node();
    void of_slurm();
    void of_script();
    [[nodiscard]] Millis length(Millis below) { return 500 + static_cast<Millis>(stage_.draw(below)); }

    Stage& stage_;
    Victims victims_;
};

}  // namespace distilld::test
