#include "models/training/rank_step.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace distilld::models {

namespace {

using torch::Tensor;

/// Bytes of gradients that are sent at once.
constexpr std::int64_t kBucketBytes = std::int64_t{32} << 20;
/// Elements: each tensor of a bucket begins at a multiple, as if it had its own memory.
constexpr std::int64_t kElementsAligned = 16;

std::int64_t padded(const Tensor& tensor) {
    return (tensor.numel() + kElementsAligned - 1) / kElementsAligned * kElementsAligned;
}

std::span<const std::byte> bytes_of(const Tensor& tensor) {
    return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

std::span<std::byte> writable_bytes_of(const Tensor& tensor) {
    return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

/// What a rank tells of its step: for each micro-batch with targets its group and losses, and for each master whether
/// it has a gradient.
struct Report {
    struct Losses {
        std::uint64_t group = 0;
        std::array<double, 3> values{};  ///< as in StepLosses
    };
    std::vector<Losses> losses;
    std::vector<std::uint8_t> used;

    [[nodiscard]] std::string text() const {
        std::string text(used.begin(), used.end());
        const auto bytes = std::as_bytes(std::span(losses));
        text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return text;
    }

    static Report read(const std::string& text, std::size_t masters) {
        if (text.size() < masters || (text.size() - masters) % sizeof(Losses) != 0) {
            throw std::runtime_error("another rank trains another network: its report has " +
                                     std::to_string(text.size()) + " bytes");
        }
        Report report;
        report.used.assign(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(masters));
        report.losses.resize((text.size() - masters) / sizeof(Losses));
        if (!report.losses.empty()) {
            std::memcpy(report.losses.data(), text.data() + masters, text.size() - masters);
        }
        return report;
    }
};

/// Adds along the plan. Where the total is: rank 0; elsewhere nothing is held afterwards.
template <typename Sum, typename Add, typename Send, typename Receive>
void add_along(const SumPlan& plan, std::uint32_t rank, std::map<SumNode, Sum>& held, const Add& add, const Send& send,
               const Receive& receive) {
    for (const SumStep& step : plan.steps) {
        if (step.to == rank) {
            add(held.at(step.node), step.from == rank ? held.at(step.more) : receive(step.from));
        } else if (step.from == rank) {
            send(held.at(step.more), step.to);
        }
        if (step.from == rank) {
            held.erase(step.more);
        }
    }
    if (plan.root != 0 && rank == plan.root) {
        send(held.begin()->second, 0);
        held.clear();
    } else if (plan.root != 0 && rank == 0) {
        held.emplace(SumNode{}, receive(plan.root));
    }
}

}  // namespace

void RankStep::complete(GradientOrder& order, StepLosses& losses) {
    const torch::NoGradGuard no_grad;
    std::vector<Nodes> sums;
    std::set<SumNode> nodes;  // that this rank holds
    Report mine;
    for (const Tensor& master : masters_) {
        sums.push_back(order.take_sums(master));
        mine.used.push_back(static_cast<std::uint8_t>(!sums.back().empty()));
        for (const auto& [node, sum] : sums.back()) {
            nodes.insert(node);
        }
    }
    for (const StepLosses::OfMicroBatch& one : losses.take()) {
        Report::Losses read{one.group, {}};
        const Tensor values = one.sums.to(torch::kCPU);
        std::memcpy(read.values.data(), values.const_data_ptr(), sizeof(read.values));
        mine.losses.push_back(read);
    }
    std::vector<bool> present(groups_, false);
    std::vector<std::uint8_t> used(masters_.size(), 0);
    std::uint64_t micro_batch = 0;
    for (const std::string& text : ranks_.gather(mine.text())) {
        const Report report = Report::read(text, masters_.size());
        std::ranges::transform(used, report.used, used.begin(), std::bit_or());
        for (const Report::Losses& one : report.losses) {
            present.at(one.group) = true;
            losses.add(micro_batch++, {static_cast<std::uint32_t>(one.group),
                                       torch::tensor(torch::ArrayRef(one.values), torch::kDouble)});
        }
    }
    const SumPlan plan = plan_sum(present, ranks_.count());
    if (!plan.empty) {
        for (std::size_t begin = 0; begin < masters_.size();) {
            begin = sum_bucket(plan, nodes, used, begin, sums);
        }
        if (order.tied_table().defined()) {
            std::map<SumNode, RowSums> rows = order.take_kept_rows();
            for (const SumNode& node : nodes) {
                rows.try_emplace(node);
            }
            order.add_kept_rows(sum_rows(plan, order.tied_table(), std::move(rows)));
        }
    }
    order.drop();
}

std::size_t RankStep::sum_bucket(const SumPlan& plan, const std::set<SumNode>& nodes,
                                 const std::vector<std::uint8_t>& used, std::size_t begin,
                                 std::vector<Nodes>& sums) const {
    struct Part {
        std::size_t master;
        std::int64_t offset;
    };
    std::vector<Part> parts;
    std::int64_t size = 0;
    std::size_t end = begin;
    for (; end < masters_.size() && size * std::int64_t{8} < kBucketBytes; ++end) {
        if (used[end] != 0) {
            parts.push_back({end, size});
            size += padded(masters_[end]);
        }
    }
    if (parts.empty()) {
        return end;
    }
    const auto options = masters_[begin].options().requires_grad(false);
    const auto place_of = [&](const Tensor& bucket, const Part& part) {
        const Tensor& master = masters_[part.master];
        return bucket.narrow(0, part.offset, master.numel()).view(master.sizes());
    };
    Nodes held;
    for (const SumNode& node : nodes) {
        held.emplace(node, torch::zeros({size}, options));
    }
    for (const Part& part : parts) {
        for (const auto& [node, sum] : std::exchange(sums[part.master], {})) {
            place_of(held.at(node), part).copy_(sum);
        }
    }
    add_along(
        plan, ranks_.rank(), held, [](Tensor& total, const Tensor& more) { total.add_(more); },
        [&](const Tensor& bucket, std::uint32_t to) { ranks_.send(bytes_of(bucket), to); },
        [&](std::uint32_t from) {
            const Tensor bucket = torch::empty({size}, options);
            ranks_.receive(writable_bytes_of(bucket), from);
            return bucket;
        });
    const Tensor total = held.empty() ? torch::empty({size}, options) : held.begin()->second;
    ranks_.broadcast(writable_bytes_of(total));
    for (const Part& part : parts) {
        masters_[part.master].mutable_grad() = place_of(total, part);
    }
    return end;
}

RowSums RankStep::sum_rows(const SumPlan& plan, const Tensor& table, std::map<SumNode, RowSums> held) const {
    const auto options = table.options().requires_grad(false);
    // Calls `pass` for the number of rows, their ids and the rows.
    const auto pass_all = [&](RowSums& sums, const auto& pass) {
        std::int64_t count = sums.ids.defined() ? sums.ids.size(0) : 0;
        pass(std::as_writable_bytes(std::span(&count, 1)));
        if (!sums.ids.defined() || sums.ids.size(0) != count) {
            sums = {torch::empty({count}, torch::kLong), torch::empty({count, table.size(1)}, options)};
        }
        sums.rows = sums.rows.contiguous();
        pass(writable_bytes_of(sums.ids));
        pass(writable_bytes_of(sums.rows));
    };
    const auto receive = [&](std::uint32_t from) {
        RowSums sums;
        pass_all(sums, [&](std::span<std::byte> bytes) { ranks_.receive(bytes, from); });
        return sums;
    };
    const auto send = [&](RowSums& sums, std::uint32_t to) {
        pass_all(sums, [&](std::span<std::byte> bytes) { ranks_.send(bytes, to); });
    };
    add_along(
        plan, ranks_.rank(), held, [](RowSums& total, const RowSums& more) { add_sum(total, more); }, send, receive);
    RowSums total = held.empty() ? RowSums{} : std::move(held.begin()->second);
    pass_all(total, [&](std::span<std::byte> bytes) { ranks_.broadcast(bytes); });
    return total;
}

StepSums RankStep::sum(const StepSums& mine) {
    static_assert(std::is_trivially_copyable_v<StepSums>);
    StepSums total;
    for (const std::string& text : ranks_.gather(std::string(reinterpret_cast<const char*>(&mine), sizeof(mine)))) {
        StepSums one;
        if (text.size() != sizeof(one)) {
            throw std::runtime_error("another rank counts in another way");
        }
        std::memcpy(&one, text.data(), sizeof(one));
        total.target_tokens += one.target_tokens;
        total.positions += one.positions;
        total.padding += one.padding;
    }
    return total;
}

void RankStep::agree(StepStats& stats) {
    static_assert(std::is_trivially_copyable_v<StepStats>);
    ranks_.broadcast(std::as_writable_bytes(std::span(&stats, 1)));
}

}  // namespace distilld::models
