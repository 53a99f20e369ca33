#include "models/training/rank_gradients.hpp"

#include <algorithm>
#include <list>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "models/network/grouped_sum.hpp"

namespace distilld::models {

namespace {

using torch::Tensor;

/// Small enough that the last ones of a step are soon there, and that each rank has one.
std::int64_t bucket_elements(std::span<const BucketedMaster> masters, std::uint32_t ranks) {
    std::int64_t all = 0;
    for (const BucketedMaster& master : masters) {
        all += master.size;
    }
    return std::clamp<std::int64_t>(all / std::max(16U, ranks), 1 << 10, 1 << 20);
}

/// The nodes of which a rank holds sums.
std::set<SumNode> nodes_of(const std::vector<bool>& present, const GroupRange& range) {
    struct Nothing {};
    GroupedSum<Nothing, [](Nothing&, const Nothing&) {}> sum(range);
    for (std::uint32_t group = 0; group < present.size(); ++group) {
        if (present[group]) {
            static_cast<void>(sum.of(group));
        }
    }
    std::set<SumNode> nodes;
    for (const auto& [node, nothing] : sum.take_nodes()) {
        nodes.insert(node);
    }
    return nodes;
}

Tensor elements(const Tensor& tensor, std::int64_t begin, std::int64_t count) {
    return tensor.reshape({-1}).narrow(0, begin, count);
}

/// Puts what has arrived, if anything has, into the gradients.
void store(const RankBucket& bucket, const Tensor& total, const std::vector<Tensor>& masters,
           std::vector<Tensor>& gradients) {
    for (const RankBucket::Part& part : bucket.parts) {
        if (total.defined()) {
            Tensor& gradient = gradients[part.master];
            if (!gradient.defined()) {
                gradient = torch::empty(masters[part.master].sizes(), masters[part.master].options());
            }
            elements(gradient, part.begin, part.count).copy_(elements(total, part.offset, part.count));
        }
    }
}

}  // namespace

RankGradients::RankGradients(RankExchange& ranks, std::uint32_t groups, std::vector<Tensor> masters,
                             const std::vector<BucketedMaster>& backward, bool to_all,
                             std::shared_ptr<GradientOrder> order)
    : ranks_(ranks),
      groups_(groups),
      masters_(std::move(masters)),
      buckets_(make_buckets(backward, bucket_elements(backward, ranks.count()))),
      to_all_(to_all),
      order_(std::move(order)) {
    for (std::size_t i = 0; to_all_ && i < buckets_.size(); ++i) {
        buckets_[i].owner = static_cast<std::uint32_t>(i % ranks_.count());
    }
}

RankGradients::Exchanged RankGradients::exchange(const Begun& mine) {
    Exchanged found;
    found.gradients.resize(masters_.size());
    found.used.resize(masters_.size(), false);
    std::vector<bool> present(groups_, false);
    for (const std::string& text : ranks_.gather(std::string(mine.present.begin(), mine.present.end()))) {
        if (text.size() != groups_) {
            throw std::runtime_error("another rank has " + std::to_string(text.size()) + " gradient groups");
        }
        for (std::uint32_t group = 0; group < groups_; ++group) {
            present[group] = present[group] || text[group] != 0;
        }
    }
    std::vector<SumPlan> plans;
    for (std::uint32_t owner = 0; owner < ranks_.count(); ++owner) {
        plans.push_back(plan_sum(present, ranks_.count(), owner));
    }
    found.plan = plans.front();
    if (found.plan.empty) {
        return found;
    }
    found.nodes = nodes_of(mine.present, groups_of_rank(groups_, ranks_.rank(), ranks_.count()));
    sums_.assign(masters_.size(), std::nullopt);
    std::list<MovingBucket> moving;
    const auto advance_all = [&] {
        for (auto bucket = moving.begin(); bucket != moving.end();) {
            if (bucket->advance()) {
                ++bucket;
            } else {
                store(bucket->bucket(), bucket->total(), masters_, found.gradients);
                bucket = moving.erase(bucket);
            }
        }
    };
    for (const RankBucket& bucket : buckets_) {
        const torch::ScalarType type = masters_[bucket.parts.front().master].scalar_type();
        moving.emplace_back(ranks_, bucket, plans[bucket.owner], load(bucket, mine, found), type, to_all_);
        advance_all();
    }
    while (!moving.empty()) {
        advance_all();
    }
    return found;
}

RankGradients::Nodes RankGradients::load(const RankBucket& bucket, const Begun& mine, Exchanged& found) {
    Nodes held;
    for (const SumNode& node : found.nodes) {
        held.emplace(node, torch::empty({bucket.size}, masters_[bucket.parts.front().master].scalar_type()));
    }
    for (const RankBucket::Part& part : bucket.parts) {
        std::optional<Nodes>& sums = sums_[part.master];
        if (!sums) {
            const Tensor& master = masters_[part.master];
            if (mine.last) {
                // As if the next micro-batch wanted to add to it. On a device, the head and then the lookup add to a
                // tied table: wait until the last micro-batch has ended.
                const bool twice = order_->tied_table().is_same(master) && !order_->keeps_rows_of(master);
                order_->enter(twice ? nullptr : master.unsafeGetTensorImpl(), *mine.last + 1);
            }
            sums = order_->take_sums(master);
            found.used[part.master] = !sums->empty();
        }
        for (const auto& [node, into] : held) {
            const Tensor place = elements(into, part.offset, part.count);
            if (const auto sum = sums->find(node); sum != sums->end()) {
                place.copy_(elements(sum->second, part.begin, part.count));
            } else {
                place.zero_();
            }
        }
        if (part.last) {
            sums->clear();
        }
    }
    return held;
}

RowSums RankGradients::sum_kept_rows(const Exchanged& exchanged) {
    const Tensor& table = order_->tied_table();
    const SumPlan& plan = exchanged.plan;
    std::map<SumNode, RowSums> held = order_->take_kept_rows();
    for (const SumNode& node : exchanged.nodes) {
        held.try_emplace(node);
    }
    // Calls `pass` for the number of rows, their ids and the rows.
    const auto pass_all = [&](RowSums& sums, const auto& pass) {
        std::int64_t count = sums.ids.defined() ? sums.ids.size(0) : 0;
        pass(std::as_writable_bytes(std::span(&count, 1)));
        if (!sums.ids.defined() || sums.ids.size(0) != count) {
            sums = {torch::empty({count}, torch::kLong), torch::empty({count, table.size(1)}, table.scalar_type())};
        }
        sums.rows = sums.rows.contiguous();
        pass(writable_bytes_of(sums.ids));
        pass(writable_bytes_of(sums.rows));
    };
    const auto receive = [&](RowSums& sums, std::uint32_t from) {
        pass_all(sums, [&](std::span<std::byte> bytes) { ranks_.receive(bytes, from); });
    };
    const auto send = [&](RowSums& sums, std::uint32_t to) {
        pass_all(sums, [&](std::span<std::byte> bytes) { ranks_.send(bytes, to); });
    };
    for (const SumStep& step : plan.steps) {
        if (step.to == ranks_.rank()) {
            RowSums more;
            if (step.from != ranks_.rank()) {
                receive(more, step.from);
            }
            add_sum(held.at(step.node), step.from == ranks_.rank() ? held.at(step.more) : more);
        } else if (step.from == ranks_.rank()) {
            send(held.at(step.more), step.to);
        }
    }
    RowSums total;
    if (plan.root == ranks_.rank()) {
        total = std::move(total_of(plan, held));
    }
    if (plan.root != 0 && plan.root == ranks_.rank()) {
        send(total, 0);
    } else if (plan.root != 0 && ranks_.rank() == 0) {
        receive(total, plan.root);
    }
    pass_all(total, [&](std::span<std::byte> bytes) { ranks_.broadcast(bytes); });
    return total;
}

}  // namespace distilld::models
