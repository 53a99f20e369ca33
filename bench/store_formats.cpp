// distilld-bench store: formats of the store by size, by what they lose and by how fast they are read.
#include "bench/store_formats.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "base/files/mapped_file.hpp"
#include "base/random.hpp"
#include "bench/median.hpp"
#include "bench/seconds_of.hpp"
#include "pipeline/store/store_checks.hpp"
#include "pipeline/store/store_export.hpp"
#include "pipeline/store/store_reader.hpp"
#include "pipeline/store/store_writer.hpp"

namespace distilld::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxStoreBytes = std::uint64_t{256} << 20U;
constexpr std::uint32_t kMeasuredPositions = 512;  // a divergence for each eighth
constexpr std::uint32_t kEntries = 64;

struct Candidate {
    StoreFormat format;
    StoreValues values;
    std::uint32_t k = 0;
    double p = 0;
    std::uint32_t samples = 0;
};

constexpr Candidate kCandidates[] = {
    {StoreFormat::full, StoreValues::f16},
    {StoreFormat::topk, StoreValues::f16, kEntries},
    {StoreFormat::packed, StoreValues::f16, kEntries},
    {StoreFormat::packed, StoreValues::u8, kEntries},
    {StoreFormat::packed, StoreValues::u8, 36},
    {StoreFormat::topp, StoreValues::f16, kEntries, 0.98},
    {StoreFormat::topp, StoreValues::u8, kEntries, 0.98},
    {StoreFormat::sampled, StoreValues::f16, 0, 0, 50},
    {StoreFormat::sampled, StoreValues::f16, 0, 0, 12},
};

/// A teacher whose probabilities fall with a power of the rank, which differs from position to position: from flat ones
/// (the 64 most probable hold 0.7) to such as are sure of their first token.
class PeakedTeacher {
  public:
    PeakedTeacher(std::uint32_t vocabulary, std::uint32_t columns) : vocabulary_(vocabulary), columns_(columns) {
        for (std::size_t i = 0; i < kPowers.size(); ++i) {
            double total = 0;
            for (std::uint32_t rank = vocabulary; rank > 0; --rank) {
                total += std::pow(rank, -kPowers[i]);
            }
            log_totals_[i] = std::log(total);
        }
    }

    TokenBatch batch(std::vector<std::uint64_t> rows) const {
        TokenBatch batch;
        batch.rows = static_cast<std::uint32_t>(rows.size());
        batch.columns = columns_;
        batch.row_ids = std::move(rows);
        batch.labels.assign(std::size_t{batch.rows} * columns_, 0);
        batch.input_ids = batch.labels;
        batch.target_tokens = batch.labels.size();
        return batch;
    }

    /// The entries; `logits` where a format needs them.
    TeacherTargets targets(const TokenBatch& batch, bool logits) const {
        struct Held {
            std::vector<std::int32_t> ids;
            std::vector<float> values;
            std::vector<float> tail;
        };
        auto held = std::make_shared<Held>();
        for (const std::uint64_t row : batch.row_ids) {
            for (std::uint32_t t = 0; t < columns_; ++t) {
                SplitMix64 random(row * columns_ + t);
                const std::size_t power = random.below(kPowers.size());
                const std::uint64_t offset = random.below(vocabulary_);
                const auto id = [&](std::uint64_t rank) { return (offset + rank * 1'000'003) % vocabulary_; };
                const auto value = [&](std::uint64_t rank) {
                    return -kPowers[power] * std::log(static_cast<double>(rank + 1)) - log_totals_[power];
                };
                if (logits) {
                    held->values.resize(held->values.size() + vocabulary_);
                    float* const position = held->values.data() + held->values.size() - vocabulary_;
                    for (std::uint64_t rank = 0; rank < vocabulary_; ++rank) {
                        position[id(rank)] = static_cast<float>(value(rank));
                    }
                    continue;
                }
                double inside = 0;
                for (std::uint64_t rank = 0; rank < kEntries; ++rank) {
                    held->ids.push_back(static_cast<std::int32_t>(id(rank)));
                    held->values.push_back(static_cast<float>(value(rank)));
                    inside += std::exp(value(rank));
                }
                held->tail.push_back(static_cast<float>(std::log1p(-inside)));
            }
        }
        TeacherTargets targets;
        targets.kind = logits ? TeacherTargets::Kind::logits : TeacherTargets::Kind::topk;
        targets.rows = batch.rows;
        targets.columns = columns_;
        targets.width = logits ? vocabulary_ : kEntries;
        targets.vocabulary = vocabulary_;
        targets.ids = {ElementType::i32, std::as_bytes(std::span(held->ids))};
        targets.values = {ElementType::f32, std::as_bytes(std::span(held->values))};
        targets.tail = {ElementType::f32, std::as_bytes(std::span(held->tail))};
        targets.owner = held;
        return targets;
    }

  private:
    static constexpr std::array kPowers{1.1, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0};

    std::uint32_t vocabulary_;
    std::uint32_t columns_;
    std::array<double, kPowers.size()> log_totals_{};
};

class ScratchFolder {
  public:
    ScratchFolder() : path_(fs::temp_directory_path() / ("distilld-bench-store-" + std::to_string(::getpid()))) {
        fs::create_directories(path_);
    }
    ~ScratchFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    ScratchFolder(const ScratchFolder&) = delete;
    ScratchFolder& operator=(const ScratchFolder&) = delete;
    [[nodiscard]] const fs::path& path() const noexcept { return path_; }

  private:
    fs::path path_;
};

bool needs_logits(StoreFormat format) {
    return format == StoreFormat::full || format == StoreFormat::sampled;
}

StoreManifest manifest_of(const Candidate& candidate, const StoreOptions& options) {
    StoreManifest manifest;
    manifest.format = candidate.format;
    manifest.values = candidate.values;
    manifest.k = candidate.k;
    manifest.p = candidate.p;
    manifest.samples = candidate.samples;
    manifest.vocabulary = options.vocabulary;
    manifest.sequence_length = options.sequence_length;
    manifest.dataset_hash = "made up";
    const std::uint64_t full_row = std::uint64_t{options.vocabulary} * 2 * options.sequence_length;
    manifest.rows = needs_logits(candidate.format)
                        ? std::clamp<std::uint64_t>(kMaxStoreBytes / full_row, 1, options.rows)
                        : options.rows;
    return complete_manifest(manifest).value();
}

std::vector<std::vector<std::uint64_t>> batches_of(const StoreManifest& manifest, std::uint32_t batch_size) {
    std::vector<std::vector<std::uint64_t>> batches;
    for (std::uint64_t row = 0; row < manifest.rows; ++row) {
        if (row % batch_size == 0) {
            batches.emplace_back();
        }
        batches.back().push_back(row);
    }
    return batches;
}

/// Mean divergence of some positions, which are encoded from logits. NaN for a format that keeps them.
double divergence_of(const StoreManifest& manifest, const StoreOptions& options) {
    const PeakedTeacher teacher(options.vocabulary, std::min(options.sequence_length, kMeasuredPositions));
    const TokenBatch batch = teacher.batch({0});
    const auto rows = RowCodec(manifest).encode(batch, teacher.targets(batch, true)).value();
    return rows.front().kl_sum / static_cast<double>(rows.front().kl_tokens);
}

void copy_pieces(std::span<const std::byte> from, std::size_t pieces, std::vector<std::byte>& to) {
    const std::size_t piece = from.size() / pieces;
    for (std::size_t i = 0; i < pieces; ++i) {
        std::memcpy(to.data(), from.data() + i * piece, piece);
    }
}

struct Timing {
    std::vector<double> first;   ///< read with a new reader: pages mapped, checksums verified
    std::vector<double> again;   ///< read with the same reader
    std::vector<double> stored;  ///< copying as many bytes as are stored, out of the mapped shards
    std::vector<double> output;  ///< copying as many bytes as the targets have
};

Timing time_reading(const fs::path& folder, const std::vector<TokenBatch>& batches, std::uint32_t repeat) {
    const auto reader = open_store_reader(folder).value();
    std::vector<MappedFile> shards;
    std::size_t stored = 0;
    for (const StoreShard& shard : reader->shards()) {
        shards.push_back(MappedFile::open(folder / shard.file).value());
        stored = std::max<std::size_t>(stored, shard.bytes);
    }
    std::size_t output = 0;
    const auto read_all = [&](StoreReader& from) {
        for (const TokenBatch& batch : batches) {
            output = std::max(output, from.read(batch).value().held_bytes);
        }
    };
    read_all(*reader);
    const std::vector<std::byte> source(output, std::byte{1});
    std::vector<std::byte> target(std::max(stored, output), std::byte{2});
    const std::size_t batches_per_shard = std::max<std::size_t>(1, batches.size() / shards.size());
    Timing timing;
    for (std::uint32_t i = 0; i < repeat; ++i) {
        timing.stored.push_back(seconds_of([&] {
            for (const MappedFile& shard : shards) {
                copy_pieces(shard.bytes(), batches_per_shard, target);
            }
        }));
        timing.again.push_back(seconds_of([&] { read_all(*reader); }));
        timing.output.push_back(seconds_of([&] {
            for (std::size_t batch = 0; batch < batches.size(); ++batch) {
                copy_pieces(source, 1, target);
            }
        }));
        timing.first.push_back(seconds_of([&] { read_all(*open_store_reader(folder).value()); }));
    }
    return timing;
}

boost::json::object measure(const Candidate& candidate, const StoreOptions& options) {
    const ScratchFolder scratch;
    const StoreManifest manifest = manifest_of(candidate, options);
    const PeakedTeacher teacher(options.vocabulary, options.sequence_length);
    std::vector<TokenBatch> batches;
    double write_seconds = 0;
    StoreProgress written;
    {
        const auto writer = open_store_writer(scratch.path(), manifest).value();
        for (auto& rows : batches_of(manifest, options.batch_size)) {
            batches.push_back(teacher.batch(std::move(rows)));
            const TeacherTargets targets = teacher.targets(batches.back(), needs_logits(candidate.format));
            write_seconds += seconds_of([&] { writer->add(batches.back(), targets).value(); });
        }
        written = writer->progress();
    }
    const Timing timing = time_reading(scratch.path(), batches, options.repeat);
    const double again = median(timing.again);
    const auto tokens = static_cast<double>(written.sealed_tokens);

    boost::json::object report;
    report["format"] = to_string(candidate.format);
    report["values"] = to_string(manifest.values);
    report["k"] = manifest.k;
    report["p"] = manifest.p;
    report["samples"] = manifest.samples;
    report["tokens"] = written.sealed_tokens;
    report["bytes_per_token"] = static_cast<double>(written.sealed_bytes) / tokens;
    report["kl"] = candidate.format == StoreFormat::full ? boost::json::value(nullptr)
                                                         : boost::json::value(divergence_of(manifest, options));
    report["kl_direction"] = candidate.format == StoreFormat::sampled ? "stored_teacher" : "teacher_stored";
    report["write_tokens_per_second"] = tokens / write_seconds;
    report["read_tokens_per_second"] = tokens / again;
    const double entries = manifest.format == StoreFormat::full ? static_cast<double>(manifest.vocabulary)
                                                                : std::max(manifest.k, manifest.samples);
    report["read_ns_per_entry"] = again * 1e9 / (tokens * entries);
    report["read_stored_gb_per_second"] = static_cast<double>(written.sealed_bytes) / again / 1e9;
    report["copy_stored_gb_per_second"] = static_cast<double>(written.sealed_bytes) / median(timing.stored) / 1e9;
    report["read_to_copy_of_stored"] = median(timing.stored) / again;
    report["read_to_copy_of_output"] = median(timing.output) / again;
    report["first_read_to_copy_of_stored"] = median(timing.stored) / median(timing.first);
    report["first_read_to_copy_of_output"] = median(timing.output) / median(timing.first);
    return report;
}

/// What a store of logits would be in another format.
boost::json::object convert(const Candidate& candidate, StoreReader& full) {
    const ScratchFolder scratch;
    StoreExport wanted;
    wanted.format = candidate.format;
    wanted.values = candidate.values;
    wanted.k = candidate.k;
    wanted.p = candidate.p;
    wanted.samples = candidate.samples;
    const StoreProgress written = export_store(full, scratch.path(), wanted).value();
    const auto reader = open_store_reader(scratch.path()).value();
    const StoreError error = measure_error(*reader, full, full.manifest().rows).value();
    const StoreManifest& manifest = reader->manifest();
    const auto tokens = static_cast<double>(written.sealed_tokens);
    boost::json::object report;
    report["format"] = to_string(manifest.format);
    report["values"] = to_string(manifest.values);
    report["k"] = manifest.k;
    report["p"] = manifest.p;
    report["samples"] = manifest.samples;
    report["tokens"] = written.sealed_tokens;
    report["bytes_per_token"] = static_cast<double>(written.sealed_bytes) / tokens;
    report["kl_teacher_stored"] = std::isfinite(error.kl_teacher_stored) ? boost::json::value(error.kl_teacher_stored)
                                                                         : boost::json::value(nullptr);
    report["kl_stored_teacher"] = error.kl_stored_teacher;
    return report;
}

}  // namespace

void add_store_options(CLI::App& command, StoreOptions& options) {
    command.add_option("--vocabulary", options.vocabulary, "ids")->check(CLI::Range(4096, 1 << 20));
    command.add_option("--sequence-length", options.sequence_length, "positions of a row")->check(CLI::Range(8, 65536));
    command.add_option("--rows", options.rows, "rows of a store")->check(CLI::Range(1, 1'000'000));
    command.add_option("--batch-size", options.batch_size, "rows read at once")->check(CLI::Range(1, 4096));
    command.add_option("--format", options.format, "only this one")
        ->check(CLI::IsMember(names_of(kEnumNames<StoreFormat>)));
    command.add_option("--store", options.store, "a store of all logits: what each format would take and lose of it")
        ->type_name("DIR");
    command.add_option("--repeat", options.repeat, "measurements of each")->check(CLI::Range(1, 1000));
}

boost::json::object run_store(const StoreOptions& options) {
    boost::json::object report;
    report["command"] = "store";
    if (!options.store.empty()) {
        const auto full = open_store_reader(options.store).value();
        report["store"] = options.store;
        report["teacher"] = full->manifest().teacher_name;
        report["vocabulary"] = full->manifest().vocabulary;
        boost::json::array formats;
        for (const Candidate& candidate : kCandidates) {
            if (options.format.empty() || options.format == to_string(candidate.format)) {
                formats.push_back(convert(candidate, *full));
            }
        }
        report["formats"] = std::move(formats);
        return report;
    }
    report["vocabulary"] = options.vocabulary;
    report["sequence_length"] = options.sequence_length;
    report["batch_size"] = options.batch_size;
    report["repeat"] = options.repeat;
    boost::json::array formats;
    for (const Candidate& candidate : kCandidates) {
        if (options.format.empty() || options.format == to_string(candidate.format)) {
            formats.push_back(measure(candidate, options));
        }
    }
    report["formats"] = std::move(formats);
    return report;
}

}  // namespace distilld::bench
