// SPDX-License-Identifier: Apache-2.0
//! Everything of the memory of another device is refused by name before the call.
use crate::*;

const THERE: Space = Space::Cuda(3);

fn refused<T>(result: Result<T>, name: &str) {
    let error = result.err().unwrap_or_else(|| panic!("{name} was taken"));
    assert_eq!(error.code(), ErrorCode::Argument);
    let wanted = format!("{name} lies in Cuda(3), the context works in Host");
    assert_eq!(error.message(), wanted);
}

#[test]
fn of_a_linear() {
    let (here, there) = (Context::cpu().unwrap(), Context::as_if_in(THERE));
    let recipe: Recipe = "block".parse().unwrap();
    let (linear, other) = (
        Linear::new(&here, &recipe, 128, 128).unwrap(),
        Linear::new(&there, &recipe, 128, 128).unwrap(),
    );
    let data = vec![Bf16::from(0.5); 128 * 128];
    let x = Tensor::new(&data, &[128, 128]).unwrap();
    let w = linear.quantize_weight(&x).unwrap();
    let mut out = data.clone();
    let mut y = TensorMut::new(&mut out, &[128, 128]).unwrap();
    let mut forward = |saved_x, workspace| {
        linear.forward(Forward {
            x: Some(&x),
            w: Some(&w),
            y: Some(&mut y),
            saved_x,
            workspace,
            ..Forward::default()
        })
    };
    let (mut saved, mut saved_there) = (linear.saved(128).unwrap(), other.saved(128).unwrap());
    let (mut scratch, mut scratch_there) = (linear.workspace(128).unwrap(), other.workspace(128).unwrap());
    refused(forward(Some(&mut saved_there), None), "saved_x");
    refused(forward(None, Some(&mut scratch_there)), "workspace");
    forward(Some(&mut saved), Some(&mut scratch)).unwrap();
    let mut gradient = vec![0f32; 128 * 128];
    let mut dw = TensorMut::new(&mut gradient, &[128, 128]).unwrap();
    let mut backward = |saved_x, workspace| {
        linear.backward(Backward {
            dy: Some(&x),
            saved_x: Some(saved_x),
            dw: Some(&mut dw),
            workspace,
            ..Backward::default()
        })
    };
    refused(backward(&saved_there, None), "saved_x");
    refused(backward(&saved, Some(&mut scratch_there)), "workspace");
    backward(&saved, Some(&mut scratch)).unwrap();
}

#[test]
fn of_primary_weights() {
    let (here, there) = (Context::cpu().unwrap(), Context::as_if_in(THERE));
    let (recipe, shapes) = (
        Recipe::preset(Preset::Block).unwrap(),
        [Shape {
            rows: 128,
            cols: 128,
            cuts: vec![0, 128 * 128],
        }],
    );
    let make = |c| ParamList::new(c, &recipe, &shapes, 0).unwrap();
    let (mut list, mut other) = (make(&here), make(&there));
    let masters = vec![0.5f32; 128 * 128];
    let masters = [Tensor::new(&masters, &[128 * 128]).unwrap()];
    list.step(ParamStep::Amax, &masters).unwrap();
    list.step(ParamStep::Cast, &masters).unwrap();
    let (mut full, mut full_there) = (list.full(Sides::BOTH).unwrap(), other.full(Sides::BOTH).unwrap());
    let bytes = list.layout().gathered_bytes as usize;
    let (gathered, gathered_there) = (Buffer::new(&here, bytes).unwrap(), Buffer::new(&there, bytes).unwrap());
    refused(list.assemble(&gathered, &mut full_there, Sides::BOTH), "full");
    refused(list.assemble(&gathered_there, &mut full, Sides::BOTH), "gathered");
    let mut rank = Comm::local(1).unwrap().pop().unwrap();
    refused(list.gather(&mut rank, &mut full_there, Sides::BOTH), "full");
    list.gather(&mut rank, &mut full, Sides::BOTH).unwrap();
    std::mem::swap(list.amax(), other.amax());
    refused(list.step(ParamStep::Amax, &masters), "amax");
}
