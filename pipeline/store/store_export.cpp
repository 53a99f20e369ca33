#include "pipeline/store/store_export.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "base/json_text.hpp"
#include "pipeline/core/target_rows.hpp"

namespace distilld {
namespace {

constexpr std::uint32_t kDefaultEntries = 64;

/// Returns why the store cannot be converted to this format; empty if it can.
std::string refusal(const StoreManifest& from, const StoreManifest& to) {
    if (from.format == StoreFormat::tensors && to.format == StoreFormat::tensors) {
        return {};
    }
    if (from.format == StoreFormat::full) {
        return {};
    }
    if (from.format != StoreFormat::topk && from.format != StoreFormat::packed) {
        return std::string("its format is ") + to_string(from.format) +
               ", which is exported as lines only: full, topk or packed is expected";
    }
    if (to.format == StoreFormat::full || to.format == StoreFormat::sampled) {
        return std::string("format ") + to_string(to.format) + " is made of logits, which it does not have";
    }
    if (to.k > from.k) {
        return "it has " + std::to_string(from.k) + " entries per position, " + std::to_string(to.k) + " are wanted";
    }
    return {};
}

boost::json::array floats_of(const ArrayView& array, std::size_t first, std::size_t count) {
    boost::json::array values;
    for (std::size_t i = 0; i < count; ++i) {
        const float value = element_as_float(array, first + i);
        values.push_back(std::isfinite(value) ? boost::json::value(value) : boost::json::value(nullptr));
    }
    return values;
}

boost::json::object position_line(const TeacherTargets& targets, std::uint64_t row, std::size_t position) {
    boost::json::object line;
    line["row"] = row;
    if (targets.kind == TeacherTargets::Kind::tensors) {
        boost::json::object& outputs = line["outputs"].emplace_object();
        for (const SampleTensor& tensor : targets.tensors) {
            const std::size_t count = tensor.values.bytes.size() / element_size(tensor.values.type);
            outputs[tensor.name] = floats_of(tensor.values, 0, count);
        }
        return line;
    }
    line["position"] = position;
    if (targets.kind == TeacherTargets::Kind::logits) {
        line["logits"] = floats_of(targets.values, position * targets.width, targets.width);
        return line;
    }
    boost::json::array ids;
    for (std::size_t i = 0; i < targets.width; ++i) {
        ids.push_back(element_as_id(targets.ids, position * targets.width + i));
    }
    line["ids"] = std::move(ids);
    line["logprobs"] = floats_of(targets.values, position * targets.width, targets.width);
    line["tail"] = floats_of(targets.tail, position, 1).front();
    return line;
}

/// One row of the dataset and its stored targets.
struct ReadRow {
    TokenBatch batch;
    TeacherTargets targets;
};

Result<ReadRow> read_row(StoreReader& from, std::uint64_t row) {
    auto batch = from.batch_of({row});
    if (!batch) {
        return batch.error();
    }
    auto targets = from.read(*batch);
    if (!targets) {
        return targets.error();
    }
    return ReadRow{std::move(*batch), std::move(*targets)};
}

}  // namespace

Result<StoreProgress> export_store(StoreReader& from, const std::filesystem::path& to, const StoreExport& options) {
    StoreManifest manifest = from.manifest();
    manifest.format = options.format;
    manifest.values = options.values;
    manifest.k = options.k != 0 ? options.k : (manifest.k != 0 ? manifest.k : kDefaultEntries);
    manifest.p = options.p;
    manifest.samples = options.samples;
    manifest.shard_rows = 0;
    manifest.generator = options.generator;
    const auto completed = complete_manifest(manifest);
    if (!completed) {
        return completed.error();
    }
    if (const std::string refused = refusal(from.manifest(), *completed); !refused.empty()) {
        return invalid_input(from.folder().string() + ": " + refused);
    }
    std::error_code error;
    if (std::filesystem::equivalent(from.folder(), to, error)) {
        return invalid_input(to.string() + ": a store cannot be exported into itself");
    }
    auto writer = open_store_writer(to, *completed);
    if (!writer) {
        return writer.error();
    }
    for (std::uint64_t row = 0; row < from.manifest().rows; ++row) {
        if (!from.has(row) || !(*writer)->needs(row)) {
            continue;
        }
        const Result<ReadRow> read = read_row(from, row);
        if (!read) {
            return read.error();
        }
        if (auto added = (*writer)->add(read->batch, read->targets); !added) {
            return added.error();
        }
    }
    return (*writer)->progress();
}

Result<void> write_store_lines(StoreReader& from, std::uint64_t first_row, std::uint64_t end_row,
                               const std::function<Result<void>(const std::string&)>& write) {
    for (std::uint64_t row = first_row; row < std::min(end_row, from.manifest().rows); ++row) {
        if (!from.has(row)) {
            continue;
        }
        const Result<ReadRow> read = read_row(from, row);
        if (!read) {
            return read.error();
        }
        for (std::size_t t = 0; t < read->batch.columns; ++t) {
            if (read->batch.labels[t] == kIgnoredLabel) {
                continue;
            }
            if (auto written = write(to_text(position_line(read->targets, row, t)) + "\n"); !written) {
                return written;
            }
        }
    }
    return {};
}

}  // namespace distilld
