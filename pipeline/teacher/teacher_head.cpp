#include "pipeline/teacher/teacher_head.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_members.hpp"
#include "base/json_text.hpp"
#include "base/sha256.hpp"
#include "pipeline/core/target_rows.hpp"

namespace distilld {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxHeaderBytes = std::size_t{64} << 10U;
constexpr std::size_t kHeaderDepth = 8;

std::optional<ElementType> element_type(std::string_view dtype) {
    if (dtype == "F16") {
        return ElementType::f16;
    }
    if (dtype == "BF16") {
        return ElementType::bf16;
    }
    return dtype == "F32" ? std::optional(ElementType::f32) : std::nullopt;
}

/// The member `name` as two whole numbers; empty if it is anything else.
std::optional<std::pair<std::uint64_t, std::uint64_t>> pair_of(const json::object& tensor, std::string_view name) {
    const json::value* member = tensor.if_contains(name);
    const json::array* both = member == nullptr ? nullptr : member->if_array();
    if (both == nullptr || both->size() != 2) {
        return std::nullopt;
    }
    const auto first = JsonMembers::whole_number<std::uint64_t>((*both)[0]);
    const auto second = JsonMembers::whole_number<std::uint64_t>((*both)[1]);
    return first && second ? std::optional(std::pair(*first, *second)) : std::nullopt;
}

/// The only tensor that the header names.
const json::object* only_tensor(const json::object& header) {
    const json::object* found = nullptr;
    for (const auto& member : header) {
        if (member.key() == "__metadata__") {
            continue;
        }
        if (found != nullptr || !member.value().is_object()) {
            return nullptr;
        }
        found = &member.value().get_object();
    }
    return found;
}

Result<TeacherHead> read_tensor(const json::object& tensor, std::span<const std::byte> data) {
    const json::value* dtype = tensor.if_contains("dtype");
    const auto type = dtype != nullptr && dtype->is_string() ? element_type(dtype->get_string()) : std::nullopt;
    if (!type) {
        return teacher_error("the head's dtype is not F16, BF16 or F32");
    }
    constexpr std::uint64_t kMaxSide = std::numeric_limits<std::int32_t>::max();
    const auto shape = pair_of(tensor, "shape");
    if (!shape || shape->first == 0 || shape->second == 0 || shape->first > kMaxSide || shape->second > kMaxSide) {
        return teacher_error("the head's shape is not [vocabulary, hidden size]");
    }
    const auto range = pair_of(tensor, "data_offsets");
    const std::uint64_t bytes = shape->first * shape->second * element_size(*type);
    if (!range || range->first != 0 || range->second != data.size() || bytes != data.size()) {
        return teacher_error("the head has " + std::to_string(data.size()) + " bytes of values, its shape needs " +
                             std::to_string(bytes));
    }
    TeacherHead head;
    head.rows = static_cast<std::uint32_t>(shape->first);
    head.columns = static_cast<std::uint32_t>(shape->second);
    head.values = {*type, data};
    return head;
}

/// Widens the values from `index` on to f32.
void widen(const ArrayView& array, std::size_t index, std::span<float> to) {
    for (std::size_t i = 0; i < to.size(); ++i) {
        to[i] = element_as_float(array, index + i);
    }
}

double dot(std::span<const float> a, std::span<const float> b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    }
    return sum;
}

}  // namespace

Result<TeacherHead> read_head_file(std::span<const std::byte> file, const std::string& sha256,
                                   std::shared_ptr<const void> owner) {
    std::uint64_t length = 0;
    if (file.size() < sizeof length) {
        return teacher_error("the head is not a safetensors file");
    }
    std::memcpy(&length, file.data(), sizeof length);
    if (length > kMaxHeaderBytes || length > file.size() - sizeof length) {
        return teacher_error("the head is not a safetensors file: its header would have " + std::to_string(length) +
                             " bytes");
    }
    const auto header_bytes = file.subspan(sizeof length, length);
    const std::string_view text(reinterpret_cast<const char*>(header_bytes.data()), header_bytes.size());
    const auto header = parse_json_text(text, kHeaderDepth);
    const json::object* tensor = header && header->is_object() ? only_tensor(header->get_object()) : nullptr;
    if (tensor == nullptr) {
        return teacher_error("the head is not a safetensors file with one tensor");
    }
    auto head = read_tensor(*tensor, file.subspan(sizeof length + length));
    if (!head) {
        return head;
    }
    Sha256 hash;
    hash.add(file);
    head->sha256 = hash.hex();
    if (!sha256.empty() && head->sha256 != sha256) {
        return teacher_error("the head's SHA-256 is " + head->sha256 + ", announced was " + sha256);
    }
    head->owner = std::move(owner);
    return head;
}

Result<TeacherTargets> project_few(const TeacherTargets& hidden, const TeacherHead& head) {
    if (hidden.width != head.columns) {
        return teacher_error("the teacher's hidden states have " + std::to_string(hidden.width) +
                             " values, its head takes " + std::to_string(head.columns));
    }
    const std::size_t positions = std::size_t{hidden.rows} * hidden.columns;
    std::vector<float> states(positions * hidden.width);
    widen(hidden.values, 0, states);
    auto logits = std::make_shared<std::vector<float>>(positions * head.rows);
    std::vector<float> row(head.columns);
    for (std::size_t token = 0; token < head.rows; ++token) {
        widen(head.values, token * head.columns, row);
        for (std::size_t position = 0; position < positions; ++position) {
            const auto state = std::span<const float>(states).subspan(position * hidden.width, hidden.width);
            (*logits)[position * head.rows + token] = static_cast<float>(dot(state, row));
        }
    }
    TeacherTargets targets;
    targets.kind = TeacherTargets::Kind::logits;
    targets.rows = hidden.rows;
    targets.columns = hidden.columns;
    targets.width = head.rows;
    targets.values = {ElementType::f32, std::as_bytes(std::span(*logits))};
    targets.loss_mask = hidden.loss_mask;
    targets.owner = std::make_shared<std::pair<decltype(logits), std::shared_ptr<const void>>>(logits, hidden.owner);
    return targets;
}

}  // namespace distilld
