#include "pipeline/core/vocabulary/token_alignment.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace distilld {
namespace {

/// The bytes of ids, and where each of them ends.
struct ReadBytes {
    std::string text;
    std::vector<std::size_t> ends;
    std::size_t begin = 0;  ///< after an added space
};

ReadBytes read_bytes(const TokenTable& table, std::span<const std::int32_t> ids) {
    ReadBytes read;
    read.ends.reserve(ids.size());
    const auto before = std::ranges::mismatch(ids, table.frame).in1 - ids.begin();
    for (std::size_t i = 0; i < ids.size(); ++i) {
        const auto id = static_cast<std::size_t>(ids[i]);
        if (static_cast<std::ptrdiff_t>(i) >= before && id < table.bytes.size()) {
            read.text += table.bytes[id];
        }
        read.ends.push_back(read.text.size());
    }
    return read;
}

std::size_t common_length(std::string_view a, std::string_view b) {
    return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

/// Leaves out added spaces where more is the same then. Returns how many bytes are.
std::size_t match(ReadBytes& student, bool student_adds, ReadBytes& teacher, bool teacher_adds) {
    const std::size_t of_student = student_adds && student.text.starts_with(' ') ? 1 : 0;
    const std::size_t of_teacher = teacher_adds && teacher.text.starts_with(' ') ? 1 : 0;
    std::size_t best = common_length(student.text, teacher.text);
    for (std::size_t a = 0; a <= of_student; ++a) {
        for (std::size_t b = 0; b <= of_teacher; ++b) {
            const std::string_view rest = std::string_view(student.text).substr(a);
            const std::size_t length = common_length(rest, std::string_view(teacher.text).substr(b));
            if (length > best) {
                best = length;
                student.begin = a;
                teacher.begin = b;
            }
        }
    }
    return best;
}

}  // namespace

TokenAlignment::TokenAlignment(TokenTable student, TokenTable teacher)
    : student_(std::move(student)), teacher_(std::move(teacher)) {
    std::unordered_map<std::string_view, std::int32_t> by_bytes;
    for (std::size_t id = 0; id < student_.bytes.size(); ++id) {
        if (!student_.bytes[id].empty() && student_.end_of_text != static_cast<std::int32_t>(id)) {
            by_bytes[student_.bytes[id]] = static_cast<std::int32_t>(id);
        }
    }
    student_ids_.resize(teacher_.bytes.size(), kNoPartner);
    for (std::size_t id = 0; id < student_ids_.size(); ++id) {
        if (teacher_.end_of_text == static_cast<std::int32_t>(id)) {
            student_ids_[id] = student_.end_of_text.value_or(kNoPartner);
        } else if (const auto found = by_bytes.find(teacher_.bytes[id]); found != by_bytes.end()) {
            student_ids_[id] = found->second;
        }
    }
    common_ids_ = student_ids_;
    std::erase(common_ids_, kNoPartner);
    std::ranges::sort(common_ids_, std::greater());
    common_ids_.erase(std::ranges::unique(common_ids_).begin(), common_ids_.end());
}

std::vector<std::int32_t> TokenAlignment::partners(std::span<const std::int32_t> student,
                                                   std::span<const std::int32_t> teacher) const {
    ReadBytes ours = read_bytes(student_, student);
    ReadBytes theirs = read_bytes(teacher_, teacher);
    const std::size_t same = match(ours, student_.adds_space, theirs, teacher_.adds_space);
    std::vector<std::int32_t> found(student.size(), kNoPartner);
    std::size_t next = 0;  // the teacher's first position that has read more than the student's
    for (std::size_t i = 0; i < student.size(); ++i) {
        const bool last = i + 1 == student.size() || ours.ends[i + 1] != ours.ends[i];
        if (!last || ours.ends[i] < ours.begin || ours.ends[i] - ours.begin > same) {
            continue;
        }
        const std::size_t end = ours.ends[i] - ours.begin + theirs.begin;
        while (next < teacher.size() && theirs.ends[next] <= end) {
            ++next;
        }
        if (next > 0 && theirs.ends[next - 1] == end) {
            found[i] = static_cast<std::int32_t>(next - 1);
        }
    }
    return found;
}

}  // namespace distilld
