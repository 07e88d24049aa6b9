// SPDX-License-Identifier: Apache-2.0
use fp8::*;

fn context() -> Context {
    Context::new(ContextConfig {
        backend: Backend::Cpu,
        threads: 2,
        ..ContextConfig::default()
    })
    .unwrap()
}

fn values(n: usize) -> Vec<f32> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1664525).wrapping_add(1013904223);
        (state >> 8) as f32 / 8388608.0 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn send_sync<T: Send + Sync>() {}
fn send<T: Send>() {}

#[test]
fn threads_as_the_headers_say() {
    send_sync::<Context>();
    send_sync::<Recipe>();
    send_sync::<Linear>();
    send_sync::<QTensor>();
    send::<Comm>();
}

#[test]
fn errors_carry_the_message() {
    let error = "no such recipe".parse::<Recipe>().unwrap_err();
    assert_eq!(error.code(), ErrorCode::Argument);
    assert!(error.to_string().contains("recipe"), "{error}");
    let x = [0f32; 6];
    let error = Tensor::new(&x, &[2, 4]).unwrap_err();
    assert!(error.message().contains("does not fill the 24 bytes"), "{error}");
}

#[test]
fn views_of_another_space_are_refused() {
    struct Elsewhere(Vec<u8>);
    // Safety: never read, as it is refused.
    unsafe impl DeviceStorage for Elsewhere {
        fn pointer(&self) -> *const std::os::raw::c_void {
            self.0.as_ptr().cast()
        }
        fn bytes(&self) -> usize {
            self.0.len()
        }
        fn space(&self) -> Space {
            Space::Cuda(3)
        }
    }
    let there = Elsewhere(vec![0; 4096]);
    let x = Tensor::from_storage(&there, Dtype::F32, &[32, 32]).unwrap();
    let recipe = Recipe::preset(Preset::Tensor).unwrap();
    let error = QTensor::quantize(
        &context(),
        &recipe,
        Role::Activation,
        &x,
        Sides::ROW,
        Quantize::default(),
    )
    .unwrap_err();
    assert!(error.message().contains("x lies in Cuda(3)"), "{error}");
    assert!(Tensor::from_storage(&there, Dtype::F32, &[32, 33]).is_err());
}

#[test]
fn buffers_hold_what_was_written() {
    let c = context();
    let mut b = Buffer::from_slice(&c, &[1.0f32, 2.0, 3.0]).unwrap();
    let mut back = [0f32; 3];
    b.read(&mut back).unwrap();
    assert_eq!(back, [1.0, 2.0, 3.0]);
    b.zero().unwrap();
    b.read(&mut back).unwrap();
    assert_eq!(back, [0.0; 3]);
    assert!(b.read(&mut [0f32; 4]).is_err());
}

#[test]
fn quantize_and_back() {
    let c = context();
    let data = values(256 * 128);
    let x = Tensor::new(&data, &[256, 128]).unwrap();
    for name in ["tensor", "row", "block", "mx", "mx_w2d"] {
        let recipe: Recipe = name.parse().unwrap();
        let mut stats = vec![0u64; 8];
        let mut view = TensorMut::new(&mut stats, &[8]).unwrap();
        let options = Quantize {
            stats: Some(&mut view),
            ..Quantize::default()
        };
        let mut q = QTensor::quantize(&c, &recipe, Role::Activation, &x, Sides::BOTH, options).unwrap();
        assert_eq!(stats[0], 256 * 128, "{name}");
        for side in [Sides::ROW, Sides::COL] {
            let mut back = vec![0f32; data.len()];
            q.dequantize(side, &mut TensorMut::new(&mut back, &[256, 128]).unwrap())
                .unwrap();
            let worst = data.iter().zip(&back).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
            assert!(worst > 0.0 && worst < 0.04, "{name} {side:?}: {worst}");
        }
        let all = q.bytes();
        q.drop_side(Sides::ROW);
        assert!(q.bytes() < all && q.codes(Sides::ROW).is_err() && q.codes(Sides::COL).is_ok());
    }
}

#[test]
fn linear_agrees_with_f32_and_saves_for_backward() {
    let c = context();
    let (rows, inputs, outputs) = (128, 256, 64);
    let (xs, ws) = (values(rows * inputs), values(outputs * inputs));
    let xb: Vec<Bf16> = xs.iter().map(|&v| v.into()).collect();
    for name in ["none", "tensor", "row", "block", "mx"] {
        let linear = Linear::new(&c, &name.parse().unwrap(), inputs, outputs).unwrap();
        let w = linear
            .quantize_weight(&Tensor::new(&ws, &[outputs, inputs]).unwrap())
            .unwrap();
        let mut saved = linear.saved(rows).unwrap();
        let mut y = vec![Bf16::default(); rows * outputs];
        linear
            .forward(Forward {
                x: Some(&Tensor::new(&xb, &[rows, inputs]).unwrap()),
                w: Some(&w),
                y: Some(&mut TensorMut::new(&mut y, &[rows, outputs]).unwrap()),
                saved_x: Some(&mut saved),
                ..Forward::default()
            })
            .unwrap();
        let exact = |r: usize, o: usize| {
            (0..inputs)
                .map(|k| xs[r * inputs + k] * ws[o * inputs + k])
                .sum::<f32>()
        };
        for (r, o) in [(0, 0), (17, 5), (127, 63)] {
            let error = (f32::from(y[r * outputs + o]) - exact(r, o)).abs();
            assert!(error < 0.6, "{name}: y[{r}, {o}] is off by {error}");
        }
        let dy = vec![Bf16::from(1.0); rows * outputs];
        let mut dw = vec![0f32; outputs * inputs];
        let mut dbias = vec![0f32; outputs];
        linear
            .backward(Backward {
                dy: Some(&Tensor::new(&dy, &[rows, outputs]).unwrap()),
                saved_x: Some(&saved),
                dw: Some(&mut TensorMut::new(&mut dw, &[outputs, inputs]).unwrap()),
                dbias: Some(&mut TensorMut::new(&mut dbias, &[outputs]).unwrap()),
                ..Backward::default()
            })
            .unwrap();
        let column: f32 = (0..rows).map(|r| xs[r * inputs + 3]).sum();
        assert!((dw[3] - column).abs() < 1.0, "{name}: dw is {}, wanted {column}", dw[3]);
        assert_eq!(dbias[5], rows as f32);
    }
}

#[test]
fn a_transposed_weight_is_refused() {
    let linear = Linear::new(&context(), &"block".parse().unwrap(), 192, 320).unwrap();
    let w = values(192 * 320);
    let error = linear
        .quantize_weight(&Tensor::new(&w, &[192, 320]).unwrap())
        .err()
        .unwrap();
    assert_eq!(error.code(), ErrorCode::Argument);
    let wanted = "w is [192, 320], this linear wants [out_features 320, in_features 192]";
    assert!(error.message().contains(wanted), "{error}");
}

#[test]
fn wrong_shapes_are_named() {
    let c = context();
    let linear = Linear::new(&c, &"block".parse().unwrap(), 256, 128).unwrap();
    let w = linear
        .quantize_weight(&Tensor::new(&values(256 * 128), &[128, 256]).unwrap())
        .unwrap();
    let x = vec![Bf16::default(); 16 * 128];
    let mut y = vec![Bf16::default(); 16 * 128];
    let error = linear
        .forward(Forward {
            x: Some(&Tensor::new(&x, &[16, 128]).unwrap()),
            w: Some(&w),
            y: Some(&mut TensorMut::new(&mut y, &[16, 128]).unwrap()),
            ..Forward::default()
        })
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::Argument);
    assert!(
        error.message().contains("256") && error.message().contains("128"),
        "{error}"
    );
}

#[test]
fn communicators_are_adopted_and_those_of_a_gpu_need_one() {
    let c = context();
    let error = Comm::nccl(&c, &[0; 128], 0, 1).err().unwrap();
    assert_eq!(error.code(), ErrorCode::Argument);
    assert!(error.message().contains("CPU context"), "{error}");
    match Comm::nccl_id() {
        Ok(id) => assert_ne!(id, [0; 128]),
        // where there is no NCCL it is said
        Err(error) => assert!(error.message().to_lowercase().contains("nccl"), "{error}"),
    }
    let mut raw = std::ptr::null_mut();
    // Safety: one output; adopted once.
    let mut comm = unsafe {
        assert!(Comm::from_raw(raw).is_err());
        assert_eq!(sys::fp8_comm_create_local(1, &mut raw), sys::FP8_OK);
        Comm::from_raw(raw).unwrap()
    };
    assert_eq!(comm.rank_and_size().unwrap(), (0, 1));
    assert_eq!(comm.as_raw(), raw);
    comm.status().unwrap();
    comm.wait(&c, Some(std::time::Duration::from_millis(100))).unwrap();
}

#[test]
fn gathered_parts_equal_the_whole() {
    let (data, recipe) = (values(256 * 128), Recipe::preset(Preset::Block).unwrap());
    let quantize = |c: &Context, data: &[f32], rows| {
        let x = Tensor::new(data, &[rows, 128]).unwrap();
        QTensor::quantize(c, &recipe, Role::Activation, &x, Sides::BOTH, Quantize::default()).unwrap()
    };
    let back = |q: &QTensor, side| {
        let mut out = vec![0f32; 256 * 128];
        q.dequantize(side, &mut TensorMut::new(&mut out, &[256, 128]).unwrap())
            .unwrap();
        out
    };
    std::thread::scope(|s| {
        for mut comm in Comm::local(2).unwrap() {
            let (data, recipe, quantize, back) = (&data, &recipe, &quantize, &back);
            s.spawn(move || {
                let c = context();
                let whole = quantize(&c, data, 256);
                let (rank, size) = comm.rank_and_size().unwrap();
                let part = quantize(&c, data.chunks(256 * 128 / size).nth(rank).unwrap(), 128);
                let mut full = QTensor::zeros(&c, recipe, Role::Activation, 256, 128, Sides::BOTH).unwrap();
                for side in [Sides::ROW, Sides::COL] {
                    comm.all_gather(&c, &part, side, &mut full, None).unwrap();
                    assert_eq!(back(&full, side), back(&whole, side), "rank {rank} {side:?}");
                }
                let mut short = QTensor::zeros(&c, recipe, Role::Activation, 128, 128, Sides::BOTH).unwrap();
                assert!(comm.all_gather(&c, &part, Sides::ROW, &mut short, None).is_err());
            });
        }
    });
}
