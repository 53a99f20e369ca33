#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "models/network/gradient_order.hpp"
#include "models/training/train_step.hpp"
#include "pipeline/core/ranks/rank_exchange.hpp"
#include "pipeline/core/ranks/sum_plan.hpp"

namespace distilld::models {

/// The end of a step for one of several ranks: gradients and losses become those of all ranks, with the bits of one
/// rank that trains on all micro-batches. On the CPU. Compute thread; blocks until the other ranks have come as far,
/// and throws what the exchange throws.
class RankStep {
  public:
    /// `groups`: training.gradient_groups, a multiple of the ranks. `masters`: the trained ones, in the same order on
    /// every rank.
    RankStep(RankExchange& ranks, std::uint32_t groups, std::vector<torch::Tensor> masters)
        : ranks_(ranks), groups_(groups), masters_(std::move(masters)) {}

    /// As GradientOrder::complete(), with the gradients and losses of all ranks.
    void complete(GradientOrder& order, StepLosses& losses);
    /// The figures of rank 0, so that all ranks take the same decision.
    void agree(StepStats& stats);
    [[nodiscard]] StepSums sum(const StepSums& mine);

  private:
    using Nodes = std::map<SumNode, torch::Tensor>;

    /// Sums the gradients of some masters from `begin` on over the ranks, which becomes their .grad, and returns the
    /// next one. `nodes`: those that this rank holds sums of. `used`: the masters with a gradient.
    [[nodiscard]] std::size_t sum_bucket(const SumPlan& plan, const std::set<SumNode>& nodes,
                                         const std::vector<std::uint8_t>& used, std::size_t begin,
                                         std::vector<Nodes>& sums) const;
    /// On every rank.
    [[nodiscard]] RowSums sum_rows(const SumPlan& plan, const torch::Tensor& table,
                                   std::map<SumNode, RowSums> held) const;

    RankExchange& ranks_;
    std::uint32_t groups_;
    std::vector<torch::Tensor> masters_;
};

}  // namespace distilld::models
