#include "bench/op_profile.hpp"

#include <ATen/record_function.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/time.hpp"
#include "bench/wait_for_device.hpp"

namespace distilld::bench {
namespace {

using Clock = std::chrono::steady_clock;

MatrixProduct::Operand operand_of(const at::Tensor& tensor) {
    return {tensor.sizes().vec(), tensor.strides().vec(), static_cast<int>(tensor.scalar_type()),
            tensor.device().str()};
}

/// A call under way, on one thread.
struct Call : at::ObserverContext {
    Call* parent = nullptr;
    Clock::time_point began;
    double seconds_of_children = 0;
    double bytes = 0;
    double bytes_of_children = 0;
    std::vector<const void*> storages;  ///< of the tensors that it reads
};

/// RecordFunction's callbacks are plain functions, so what they record has to be reachable from there.
struct Recording {
    std::mutex mutex;
    std::map<std::string, OperationTotals> operations;
    std::vector<MatrixProduct> products;
};
Recording* recording = nullptr;
thread_local Call* innermost = nullptr;

template <class Values, class Function>
void for_each_tensor(const Values& values, const Function& function) {
    for (const c10::IValue& value : values) {
        if (value.isTensor() && value.toTensor().defined() && value.toTensor().has_storage()) {
            function(value.toTensor());
        } else if (value.isTensorList()) {
            for (const at::Tensor& tensor : value.toTensorVector()) {
                if (tensor.defined() && tensor.has_storage()) {
                    function(tensor);
                }
            }
        }
    }
}

/// Index of a product's left operand; -1 for other operations. addmm and baddbmm add the product to their first tensor.
int left_operand(std::string_view name) {
    if (name == "aten::mm" || name == "aten::bmm") {
        return 0;
    }
    return name == "aten::addmm" || name == "aten::addmm_" || name == "aten::baddbmm" || name == "aten::baddbmm_" ? 1
                                                                                                                  : -1;
}

bool allocates(std::string_view name) {
    return name.starts_with("aten::empty") || name == "aten::resize_" || name == "aten::set_";
}

void record_product(const at::RecordFunction& function) {
    const int left = left_operand(function.name());
    const auto inputs = function.inputs();
    if (left < 0 || inputs.size() < static_cast<std::size_t>(left) + 2) {
        return;
    }
    const at::Tensor& first = inputs[static_cast<std::size_t>(left)].toTensor();
    const at::Tensor& second = inputs[static_cast<std::size_t>(left) + 1].toTensor();
    const std::lock_guard lock(recording->mutex);
    recording->products.push_back({operand_of(first), operand_of(second)});
}

std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& function) {
    auto call = std::make_unique<Call>();
    call->parent = std::exchange(innermost, call.get());
    // The inputs are gone when the call ends.
    for_each_tensor(function.inputs(), [&call](const at::Tensor& tensor) {
        call->bytes += static_cast<double>(tensor.nbytes());
        call->storages.push_back(tensor.storage().unsafeGetStorageImpl());
    });
    record_product(function);
    call->began = Clock::now();
    return call;
}

void on_end(const at::RecordFunction& function, at::ObserverContext* context) {
    auto& call = static_cast<Call&>(*context);
    for_each_tensor(function.outputs(), [](const at::Tensor& tensor) { wait_for(tensor.device()); });
    const double seconds = to_seconds(Clock::now() - call.began);
    const std::string name = function.name();
    bool is_view = !name.ends_with('_') && !function.outputs().empty();
    for_each_tensor(function.outputs(), [&](const at::Tensor& tensor) {
        call.bytes += static_cast<double>(tensor.nbytes());
        is_view =
            is_view && std::ranges::find(call.storages, tensor.storage().unsafeGetStorageImpl()) != call.storages.end();
    });
    const double bytes = is_view || allocates(name) ? 0 : call.bytes;
    innermost = call.parent;
    if (call.parent != nullptr) {
        call.parent->seconds_of_children += seconds;
        call.parent->bytes_of_children += std::max(bytes, call.bytes_of_children);
    }
    const std::lock_guard lock(recording->mutex);
    OperationTotals& totals = recording->operations[name];
    ++totals.calls;
    totals.seconds += seconds - call.seconds_of_children;
    totals.bytes += std::max(0.0, bytes - call.bytes_of_children);
}

/// Records while it lives.
class Recorder {
  public:
    explicit Recorder(Recording& into) {
        recording = &into;
        handle_ = at::addGlobalCallback(at::RecordFunctionCallback(on_begin, on_end)
                                            .needsInputs(true)
                                            .needsOutputs(true)
                                            .scopes({at::RecordScope::FUNCTION}));
    }
    Recorder(const Recorder&) = delete;
    Recorder& operator=(const Recorder&) = delete;
    ~Recorder() {
        at::removeCallback(handle_);
        recording = nullptr;
    }

  private:
    at::CallbackHandle handle_ = 0;
};

at::Tensor random_tensor(const MatrixProduct::Operand& operand) {
    std::int64_t count = 1;
    for (std::size_t i = 0; i < operand.sizes.size(); ++i) {
        count += (operand.sizes[i] - 1) * operand.strides[i];
    }
    const auto type = static_cast<at::ScalarType>(operand.scalar_type);
    return torch::randn({count}, at::Device(operand.device)).to(type).as_strided(operand.sizes, operand.strides);
}

}  // namespace

OperationProfile profile_operations(const std::function<void()>& work) {
    Recording recorded;
    OperationProfile profile;
    {
        const Recorder recorder(recorded);
        const Clock::time_point began = Clock::now();
        work();
        profile.seconds = to_seconds(Clock::now() - began);
    }
    for (auto& [name, totals] : recorded.operations) {
        totals.name = name;
        profile.operations.push_back(std::move(totals));
    }
    std::ranges::sort(profile.operations, std::greater{}, &OperationTotals::seconds);
    profile.products = std::move(recorded.products);
    return profile;
}

double operations_of(const std::vector<MatrixProduct>& products) {
    double operations = 0;
    for (const MatrixProduct& product : products) {
        double count = 2 * static_cast<double>(product.right.sizes.back());
        for (const std::int64_t size : product.left.sizes) {
            count *= static_cast<double>(size);
        }
        operations += count;
    }
    return operations;
}

double measure_products(const std::vector<MatrixProduct>& products) {
    const torch::NoGradGuard no_grad;
    std::vector<std::pair<MatrixProduct::Operand, at::Tensor>> made;
    const auto tensor_of = [&made](const MatrixProduct::Operand& operand) {
        const auto known = std::ranges::find(made, operand, &std::pair<MatrixProduct::Operand, at::Tensor>::first);
        return known != made.end() ? known->second : made.emplace_back(operand, random_tensor(operand)).second;
    };
    std::vector<std::pair<at::Tensor, at::Tensor>> operands;
    operands.reserve(products.size());
    for (const MatrixProduct& product : products) {
        operands.emplace_back(tensor_of(product.left), tensor_of(product.right));
    }
    const auto wait_for_all = [&made] {
        for (const auto& [operand, tensor] : made) {
            wait_for(tensor.device());
        }
    };
    wait_for_all();
    const Clock::time_point began = Clock::now();
    for (const auto& [left, right] : operands) {
        static_cast<void>(at::matmul(left, right));
    }
    wait_for_all();
    return to_seconds(Clock::now() - began);
}

}  // namespace distilld::bench
