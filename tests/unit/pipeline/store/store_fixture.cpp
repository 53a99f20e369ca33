#include "tests/unit/pipeline/store/store_fixture.hpp"

#include <algorithm>
#include <memory>
#include <numeric>

#include "base/random.hpp"
#include "pipeline/core/target_rows.hpp"

namespace distilld::test {
namespace {

/// Positions without loss: the first of each row (a prompt), and in odd rows the last.
bool carries_loss(std::uint64_t row, std::uint32_t position) {
    return position > 0 && (row % 2 == 0 || position + 1 < StoreData::kColumns);
}

template <class T>
std::string text_of(const T& view) {
    return {reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size()};
}

}  // namespace

StoreManifest StoreData::manifest(StoreFormat format, StoreValues values) {
    StoreManifest manifest;
    manifest.format = format;
    manifest.values = values;
    manifest.k = 6;
    manifest.p = 0.8;
    manifest.samples = 20;
    manifest.vocabulary = kVocabulary;
    manifest.rows = kRows;
    manifest.sequence_length = kColumns;
    manifest.shard_rows = 3;
    manifest.dataset_hash = "d5";
    manifest.tokenizer_hash = "70";
    manifest.teacher = "a teacher";
    return complete_manifest(manifest).value();
}

TokenBatch StoreData::batch(const std::vector<std::uint64_t>& rows) {
    TokenBatch batch;
    batch.rows = static_cast<std::uint32_t>(rows.size());
    batch.columns = kColumns;
    batch.row_ids = rows;
    for (const std::uint64_t row : rows) {
        batch.lengths.push_back(kColumns);
        for (std::uint32_t t = 0; t < kColumns; ++t) {
            batch.input_ids.push_back(static_cast<std::int32_t>((row + t) % kVocabulary));
            batch.labels.push_back(carries_loss(row, t) ? 1 : kIgnoredLabel);
            batch.target_tokens += carries_loss(row, t) ? 1 : 0;
        }
    }
    return batch;
}

std::vector<float> StoreData::logits(std::uint64_t row, std::uint32_t position) {
    SplitMix64 random(row * 1000 + position);
    std::vector<float> logits(kVocabulary);
    std::ranges::generate(logits, [&] { return static_cast<float>(16 * random.uniform() - 8); });
    return logits;
}

TeacherTargets StoreData::full(const TokenBatch& batch) {
    struct Held {
        std::vector<float> logits;
        std::vector<std::byte> mask;
    };
    auto held = std::make_shared<Held>();
    for (std::size_t b = 0; b < batch.rows; ++b) {
        for (std::uint32_t t = 0; t < kColumns; ++t) {
            const auto row = logits(batch.row_ids[b], t);
            held->logits.insert(held->logits.end(), row.begin(), row.end());
            held->mask.push_back(carries_loss(batch.row_ids[b], t) ? std::byte{1} : std::byte{0});
        }
    }
    TeacherTargets targets;
    targets.kind = TeacherTargets::Kind::logits;
    targets.rows = batch.rows;
    targets.columns = kColumns;
    targets.width = kVocabulary;
    targets.vocabulary = kVocabulary;
    targets.values = {ElementType::f32, std::as_bytes(std::span(held->logits))};
    targets.loss_mask = {ElementType::u8, held->mask};
    targets.owner = held;
    return targets;
}

TeacherTargets StoreData::entries(const TokenBatch& batch, std::uint32_t k) {
    return reduce_logits(full(batch), k).value();
}

TeacherTargets StoreData::targets(const TokenBatch& batch, StoreFormat format) {
    const bool logits = format == StoreFormat::full || format == StoreFormat::sampled;
    return logits ? full(batch) : entries(batch, 6);
}

Result<void> StoreData::write(StoreWriter& writer, const std::vector<std::uint64_t>& rows, std::size_t batch_size) {
    for (std::size_t first = 0; first < rows.size(); first += batch_size) {
        const std::size_t end = std::min(first + batch_size, rows.size());
        const TokenBatch part =
            batch({rows.begin() + static_cast<std::ptrdiff_t>(first), rows.begin() + static_cast<std::ptrdiff_t>(end)});
        if (auto added = writer.add(part, targets(part, writer.manifest().format)); !added) {
            return added;
        }
    }
    return {};
}

std::vector<std::uint64_t> StoreData::all_rows() {
    std::vector<std::uint64_t> rows(kRows);
    std::iota(rows.begin(), rows.end(), std::uint64_t{0});
    return rows;
}

std::vector<std::pair<std::string, std::string>> shard_bytes(const std::filesystem::path& folder) {
    std::vector<std::pair<std::string, std::string>> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().filename().string().starts_with("shard-")) {
            files.emplace_back(entry.path().filename().string(), read_bytes(entry.path()));
        }
    }
    std::ranges::sort(files);
    return files;
}

std::vector<std::string> bytes_of(const TeacherTargets& targets) {
    return {text_of(targets.ids), text_of(targets.values), text_of(targets.tail), text_of(targets.loss_mask)};
}

}  // namespace distilld::test
