#include <algorithm>
#include <boost/json/object.hpp>
#include <chrono>
#include <cmath>
#include <memory>

#include "api/kinds/text_checks.hpp"
#include "api/section_fields.hpp"
#include "base/json_text.hpp"
#include "pipeline/core/ranks/rank_rules.hpp"

namespace distilld::api {
namespace {

namespace json = boost::json;
using enum DecidesWeights::Answer;

constexpr std::size_t kMaxOptions = 32;
constexpr std::size_t kMaxOption = 256;

/// An object of texts.
class ClusterOptionsKind final : public ValueKind {
  public:
    std::optional<json::value> read(const json::value& value, const FieldReport& report) const override {
        const auto* object = value.if_object();
        if (object == nullptr) {
            return refuse(report, "wrong_type", "an object of texts is expected, not " + kind_name(value));
        }
        if (object->size() > kMaxOptions) {
            return refuse(report, "out_of_range", "has more than " + std::to_string(kMaxOptions) + " options");
        }
        for (const auto& [name, text] : *object) {
            if (!is_cluster_option(name)) {
                return refuse(report, "invalid_value",
                              "has the name " + quote(name) + "; names have small letters, digits and dashes");
            }
            if (!text.is_string()) {
                return refuse(report, "wrong_type", "has at " + quote(name) + " " + kind_name(text) + ", not a text");
            }
            if (text.get_string().size() > kMaxOption || has_control_character(text.get_string())) {
                return refuse(report, "invalid_value",
                              "has at " + quote(name) + " a control character, or more than " +
                                  std::to_string(kMaxOption) + " bytes");
            }
        }
        return value;
    }
    json::object schema() const override {
        return {{"type", "object"},
                {"maxProperties", kMaxOptions},
                {"additionalProperties", json::object{{"type", "string"}, {"maxLength", kMaxOption}}}};
    }
    std::string values() const override { return "object of texts"; }
};

FieldKind<JobSpec> cluster_options_kind() {
    const auto to = [](const PlacementSpec& placement) -> json::value {
        if (placement.options.empty()) {
            return nullptr;
        }
        json::object options;
        for (const auto& [name, text] : placement.options) {
            options[name] = text;
        }
        return options;
    };
    const auto from = [](PlacementSpec& placement, const json::value& kept) {
        placement.options.clear();
        for (const auto& [name, text] : kept.as_object()) {
            placement.options.emplace(name, text.as_string());
        }
    };
    return make_field<PlacementSpec>(std::make_shared<ClusterOptionsKind>(), to, from);
}

FieldKind<JobSpec> time_limit_kind() {
    constexpr double kYear = 365.0 * 24 * 3600;
    const auto to = [](const PlacementSpec& placement) {
        return json::value(static_cast<double>(placement.time_limit.count()) / 1000);
    };
    const auto from = [](PlacementSpec& placement, const json::value& kept) {
        placement.time_limit = std::chrono::milliseconds(std::llround(kept.to_number<double>() * 1000));
    };
    return make_field<PlacementSpec>(seconds_kind({.max = kYear}), to, from);
}

constexpr TextForm kPartitionForm{
    .pattern = "[A-Za-z0-9_.,-]+",
    .values = "letters, digits and `_ . - ,`",
    .complaint = "must consist of letters, digits and _ . - ,",
};

}  // namespace

bool is_cluster_option(std::string_view name) {
    const auto is_good = [](char c) { return (c >= 'a' && c <= 'z') || is_digit(c) || c == '-'; };
    return !name.empty() && name.size() <= 64 && name.front() != '-' && std::ranges::all_of(name, is_good);
}

std::vector<SpecField> placement_fields() {
    return {
        {.pointer = "/placement/nodes",
         .kind = make_integer(&PlacementSpec::nodes, {1, kMaxPlacedRanks}),
         .decides_weights = no,
         .help = "machines, with at least one rank each (docs/ranks.md)"},
        {.pointer = "/placement/ranks_per_node",
         .kind = make_integer(&PlacementSpec::ranks_per_node, {1, kMaxRanks}),
         .decides_weights = no,
         .help = "ranks on each node that the cluster starts; `training.gradient_groups` must be a multiple of all"},
        {.pointer = "/placement/cores",
         .kind = make_integer(&PlacementSpec::cores, {0, 1024}),
         .decides_weights = no,
         .help = "cores per rank",
         .default_note = "= one per thread (`training.threads`, or 1 if that is 0)"},
        {.pointer = "/placement/memory",
         .kind = make_size(&PlacementSpec::memory, {0, 1ULL << 50}),
         .decides_weights = no,
         .help = "memory per node",
         .default_note = "= the cluster's default"},
        {.pointer = "/placement/gpus",
         .kind = make_integer(&PlacementSpec::gpus, {0, 64}),
         .decides_weights = no,
         .help = "GPUs per node"},
        {.pointer = "/placement/partition",
         .kind =
             make_text(&PlacementSpec::partition, {.max_bytes = 256, .may_be_empty = true, .form = &kPartitionForm}),
         .decides_weights = no,
         .help = "partition of the cluster, or several between commas",
         .default_note = "the cluster's default"},
        {.pointer = "/placement/time_limit",
         .kind = time_limit_kind(),
         .decides_weights = no,
         .help = "seconds after which the cluster ends the worker, rounded up to minutes",
         .default_note = "= the partition's"},
        {.pointer = "/placement/options",
         .kind = cluster_options_kind(),
         .decides_weights = no,
         .help =
             "further options of the cluster, for Slurm those of `sbatch` without dashes (`{\"account\": \"lab\"}`). "
             "The service allows those of its `launcher.allowed_options`"},
    };
}

}  // namespace distilld::api
