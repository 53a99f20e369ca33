#pragma once

#include <torch/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/network/gradient_order.hpp"
#include "models/network/parameter.hpp"
#include "models/optimizers/layered_optimizer.hpp"
#include "models/training/rank_gradients.hpp"
#include "models/training/train_step.hpp"
#include "pipeline/core/ranks/rank_exchange.hpp"

namespace distilld::models {

/// The steps of one of several ranks: gradients and losses become those of all ranks, with the bits of one rank that
/// trains on all micro-batches. What ranks exchange passes through host memory. A thread of its own exchanges gradients
/// while backward computes others.
///
/// With training.shard_optimizer (ZeRO-1: Rajbhandari et al., arXiv 1910.02054), each parameter group has an owner
/// among the ranks. Only the owner gets the group's gradient, keeps its optimizer state and updates it. It sends the
/// others the new weights: of a matrix that forward reads in another dtype only the copy in that dtype, so that from
/// the first forward on, only the owner has its master.
///
/// Compute thread, but for arrive(). Calls block until the other ranks have come as far, and throw what the exchange
/// throws.
class RankStep {
  public:
    /// `compute`: the dtype of matrices in forward; the masters' if forward reads those.
    RankStep(RankExchange& ranks, const TrainingSpec& training, std::span<const ParameterGroup> groups,
             torch::ScalarType compute, std::shared_ptr<GradientOrder> order);
    RankStep(const RankStep&) = delete;
    RankStep& operator=(const RankStep&) = delete;
    /// Abandons the exchange if it is under way.
    ~RankStep();

    /// Whether this rank keeps the optimizer state of a parameter group.
    [[nodiscard]] bool owns(std::size_t group) const { return !sharded_ || owners_.at(group) == ranks_.rank(); }
    /// Before the first step. Outlives this.
    void set_optimizer(LayeredOptimizer& optimizer) { optimizer_ = &optimizer; }

    /// This rank's last micro-batch of the step is about to train, with ticket `last`: gradients are sent as soon as it
    /// has added to them. `present[g]`: group g has micro-batches with targets here. Without this call, complete()
    /// sends everything.
    void begin(std::vector<bool> present, std::uint64_t last);
    /// As GradientOrder::complete(), with the gradients and losses of all ranks. Whether there are any gradients.
    [[nodiscard]] bool complete(StepLosses& losses);
    /// The norm of all gradients ([], fp64, on the CPU), after complete().
    [[nodiscard]] torch::Tensor gradient_norm();
    /// The figures of rank 0, so that all ranks take the same decision.
    void agree(StepStats& stats);
    /// With shard_optimizer: applies the pending updates of the groups that this rank owns, and begins to exchange the
    /// new weights.
    void share_weights();
    /// Before the group's forward: waits for its new weights, and drops what is left to their owner. One thread at a
    /// time.
    void arrive(std::size_t group);
    /// Waits for all new weights.
    void arrive_all();
    /// Ends a step. Figures of this rank get the time that complete() has waited since the run began, and the
    /// optimizer stage's busy time loses it.
    [[nodiscard]] StepOfAll sum(const StepSums& mine, RankCounters figures);

    struct Collected {
        NamedTensors optimizer;  ///< LayeredOptimizer::state()
        NamedTensors masters;    ///< those that this rank has dropped
    };
    /// On rank 0, between steps: copies in host memory, from all ranks.
    [[nodiscard]] Collected collect_state();
    /// On the others, after the last step: until rank 0 has its copies, or is gone.
    void attend_last_snapshot() noexcept;

  private:
    struct Master {
        torch::Tensor tensor;
        std::size_t group = 0;  ///< of parameters
        Parameter parameter;    ///< shares the tensor
        bool in_table_group = false;
    };

    struct MovingWeight {
        std::unique_ptr<RankExchange::Transfer> transfer;
        torch::Tensor host;  ///< outlives the transfer
        torch::Tensor into;  ///< on a device, to be filled from `host`; undefined: nothing is left to do
    };

    [[nodiscard]] static std::vector<Master> masters_of(std::span<const ParameterGroup> groups);
    [[nodiscard]] RankGradients make_gradients(std::uint32_t groups) const;
    /// Starts the step's exchange, which waits for `begun_`. With shard_optimizer, ranks other than 0 answer rank 0
    /// until then.
    void launch();
    void send_state();
    void receive_weights(std::size_t group);
    /// Whether only the owner of the master keeps it.
    [[nodiscard]] bool leaves_to_owner(const Master& master) const;
    /// What the owner sends after an update, and where the others receive it.
    [[nodiscard]] torch::Tensor shared_weight(const Master& master) const;

    RankExchange& ranks_;
    std::uint32_t groups_;  ///< of micro-batches
    bool sharded_;
    torch::ScalarType compute_;
    std::vector<std::uint32_t> owners_;  ///< of parameter groups
    std::vector<Master> masters_;        ///< the trained ones, in forward order
    std::shared_ptr<GradientOrder> order_;
    LayeredOptimizer* optimizer_ = nullptr;
    RankGradients gradients_;
    std::vector<std::vector<MovingWeight>> weights_;           ///< by group: on their way
    std::vector<bool> used_;                                   ///< by master: some rank has added to it in this step
    std::atomic<bool> served_ = false;                         ///< a state was sent, or none will be
    std::optional<std::promise<RankGradients::Begun>> begun_;  ///< of the exchange that is under way
    std::future<RankGradients::Exchanged> done_;
    std::chrono::steady_clock::duration waited_{};  ///< for the other ranks
    double told_wait_ = 0;                          ///< of it: seconds at the end of the step before
};

}  // namespace distilld::models
