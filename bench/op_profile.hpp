#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

/// What libtorch executes for a piece of work, for benchmarks. Torch-free header.
namespace distilld::bench {

/// All calls of one operation. Its time excludes operations that it calls.
struct OperationTotals {
    std::string name;  ///< "aten::mm"
    std::uint64_t calls = 0;
    double seconds = 0;
    double bytes = 0;  ///< of tensors read and written, without those of operations that it calls; 0 for views
};

/// The operands of a matrix product, or of a batch of them.
struct MatrixProduct {
    struct Operand {
        std::vector<std::int64_t> sizes;
        std::vector<std::int64_t> strides;
        int scalar_type = 0;  ///< c10::ScalarType
        std::string device;   ///< "cpu", "cuda:0"
        bool operator==(const Operand&) const = default;
    };
    Operand left;
    Operand right;
};

struct OperationProfile {
    std::vector<OperationTotals> operations;  ///< most seconds first
    std::vector<MatrixProduct> products;      ///< in the order of their execution
    double seconds = 0;                       ///< of the whole work: more than the operations' sum
};

/// Runs `work` and records the operations of the calling thread and of others that it waits for. Not reentrant.
/// Recording costs about a microsecond per operation on a CPU. On a GPU, each operation is waited for. Passes on what
/// `work` throws.
[[nodiscard]] OperationProfile profile_operations(const std::function<void()>& work);

/// Floating-point operations of the products: 2·m·k·n each.
[[nodiscard]] double operations_of(const std::vector<MatrixProduct>& products);

/// Seconds for executing the products back to back on random operands. Products of one shape share their operands,
/// so small ones find them in the cache. On a GPU, the last is waited for. On the calling thread, with libtorch's
/// number of threads.
[[nodiscard]] double measure_products(const std::vector<MatrixProduct>& products);

}  // namespace distilld::bench
